"""The client of registries against Debian's docker-registry: plain, TLS, logins, a full disk."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from own_registry import OwnRegistry, docker_registry, own_registry
from small_disk import small_disk

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.publish.record import Record, put_record, read_published
from imgbuild.registry.repository import OCI_MANIFEST
from imgbuild.registry.repository_client import RegistryClient, connect
from imgbuild.settings import Settings

LOGIN = ("robot", "a pässword: with a colon")
SOME = "sha256:" + "1" * 64
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"


@pytest.fixture(autouse=True)
def _own_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the Docker client's configuration be the test's."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def log_in(folder: Path, server: OwnRegistry, login: tuple[str, str]) -> None:
    """Leave what ``docker login`` leaves."""
    auth = b64encode(":".join(login).encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": auth}}}))


@contextmanager
def opened(server: OwnRegistry, *, ca: bool = True, attempts: int = 5) -> Iterator[RegistryClient]:
    """Give a client that waits for little."""
    publishing = {"attempts": attempts, "first_wait": 0.05}
    bundle = {"ca_bundle": str(server.ca)} if server.ca and ca else {}
    settings = Settings.model_validate({"publishing": publishing, **bundle})
    registry = connect(f"{server.host}/ml/tf", settings, lambda _text: None, "--to")
    try:
        yield registry
    finally:
        registry.close()


def push_image(registry: RegistryClient, tag: str) -> str:
    """Put a tiny image there, which a real one would come to by way of an engine."""

    def described(content: bytes, kind: str) -> dict[str, Any]:
        return {"mediaType": kind, "digest": registry.put_blob(content), "size": len(content)}

    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": described(json.dumps({"tag": tag}).encode(), CONFIG),
        "layers": [described(b"layer", LAYER)],
    }
    return registry.put_manifest(tag, json.dumps(document).encode(), OCI_MANIFEST)


def publish(registry: RegistryClient, number: int) -> Record:
    """Publish an image, its record and the tag that moves."""
    tag = f"1.0-20261120.{number}"
    record = Record(
        image="tf-1.0-cpu",
        digest=push_image(registry, tag),
        image_id=SOME,
        size=5,
        release=f"20261120.{number}",
        tag=tag,
        moving=("1.0",),
        input_digest=SOME,
        variant="cpu",
        stack="debian",
        pins={"tensorflow": "1.0"},
        suites=(),
        report={},
        substitutes=(),
        published=f"2026-11-20T00:00:{number:02}Z",
    )
    manifest = registry.manifest(record.digest)
    assert manifest
    put_record(registry, record, manifest)
    registry.put_manifest("1.0", manifest.content, manifest.media_type)
    return record


@pytest.mark.parametrize(
    ("apt_get", "expected"),
    [
        (None, "there is no apt-get to fetch it with"),
        ("echo E: no such package >&2; exit 100", "apt-get cannot fetch it: E: no such package"),
    ],
)
def test_without_docker_registry_tests_fail_and_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apt_get: str | None, expected: str
) -> None:
    if apt_get:
        program = tmp_path / "apt-get"
        program.write_text(f"#!/bin/sh\n{apt_get}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    text = rf"install it \(apt-get install docker-registry\); {expected}"
    with pytest.raises(pytest.fail.Exception, match=text):
        docker_registry.__wrapped__()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("login", [None, LOGIN])
def test_publishing_and_reading(tmp_path: Path, tls: bool, login: tuple[str, str] | None) -> None:
    with own_registry(tmp_path / "r", tls=tls, login=login) as server:
        if login:
            log_in(tmp_path, server, login)
        with opened(server) as registry:
            assert (registry.tags(), registry.head("1.0")) == ((), None)
            records = [publish(registry, number) for number in range(1, 4)]
            found = read_published(registry)
            assert found.whole == tuple(records)
            assert [*found.faults(), *found.notes()] == []
            immutable = [record.tag for record in records]
            expected = {*immutable, *(f"{tag}.record" for tag in immutable), "1.0"}
            assert {*registry.tags()} == expected


def test_logins_that_are_not_there_or_wrong_or_no_longer_right(tmp_path: Path) -> None:
    with own_registry(tmp_path / "r", login=LOGIN) as server:
        with opened(server) as registry, pytest.raises(CheckFailedError, match="this machine has"):
            registry.tags()
        log_in(tmp_path, server, (LOGIN[0], "wrong"))
        with opened(server) as registry, pytest.raises(CheckFailedError, match="docker login 127"):
            registry.tags()
        log_in(tmp_path, server, LOGIN)
        with opened(server) as registry:
            publish(registry, 1)
            server.set_login(LOGIN[0], "new")
            with pytest.raises(CheckFailedError, match="wrong or has expired"):
                publish(registry, 2)
            log_in(tmp_path, server, (LOGIN[0], "new"))
            publish(registry, 2)


def test_tls_of_somebody_who_is_not_known(tmp_path: Path) -> None:
    with (
        own_registry(tmp_path / "r", tls=True) as server,
        opened(server, ca=False) as registry,
        pytest.raises(MachineError, match="TLS certificate is not trusted here"),
    ):
        registry.tags()


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "data", 4 << 20) as disk,
        own_registry(tmp_path / "r", storage=disk.folder) as server,
        opened(server, attempts=2) as registry,
    ):
        first = publish(registry, 1)
        disk.fill(0)
        with pytest.raises(MachineError, match=r"answered 500.* (its|Its) disk"):
            publish(registry, 2)
        assert read_published(registry).whole == (first,)
        disk.empty()
        second = publish(registry, 2)
        assert read_published(registry).whole == (first, second)


def test_a_registry_that_comes_back(tmp_path: Path) -> None:
    with own_registry(tmp_path / "r") as server, opened(server, attempts=2) as registry:
        first = publish(registry, 1)
        server.stop()
        with pytest.raises(MachineError, match=r"\(2 tries\)"):
            publish(registry, 2)
        server.start()
        second = publish(registry, 2)
        assert read_published(registry).whole == (first, second)
