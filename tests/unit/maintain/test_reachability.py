"""Which inputs an audit asks for, and how a repository's signature is judged."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.maintain.reachability import (
    AWAY,
    OtherInput,
    check_input,
    compare_inputs,
    list_other_inputs,
    verify_signature,
)
from imgbuild.matrix.images import Image
from imgbuild.net.http import LARGEST_ANSWER, HttpClient
from imgbuild.net.sites import Sites
from support.faulty_server import FaultyServer, Reply
from support.registry_server import Fault, registry_server

pytest_plugins = ("support.audit_fixtures",)
SHA = hashlib.sha256(b"content").hexdigest()


def _inputs(
    images: dict[str, Image], project: Project, **settings: object
) -> dict[str, OtherInput]:
    image = images["tf-2.2-gpu-ubuntu"]
    sites = Sites(image.matrix.upstream_urls, Settings.model_validate(settings))
    return {item.name: item for item in list_other_inputs([image], project, sites)}


@pytest.mark.parametrize(
    ("sha256", "download", "state"),
    [
        (SHA, False, "reachable"),
        (None, False, "unlocked"),
        (SHA, True, "verified"),
        ("cd" * 32, True, "differs"),
        (None, True, "unlocked"),
    ],
)
def test_the_state_of_an_input(
    server: FaultyServer, client: HttpClient, sha256: str | None, download: bool, state: str
) -> None:
    url, place = server.give("/x.tar.gz", Reply(b"content")), ("sources", "x", "sha256")
    found = check_input(client, Sites(), download, OtherInput("x", url, sha256, place))
    assert found.state == state
    assert [c.place for c in compare_inputs([found])] == ([place] if state == "differs" else [])


def test_inputs_that_do_not_answer(server: FaultyServer, client: HttpClient) -> None:
    for url, detail in (
        (f"{server.url}/absent", "404 Not Found"),
        ("http://127.0.0.1:9/x", "Connection refused"),
        ("http://no.such.invalid/x", ""),
    ):
        found = check_input(client, Sites(), False, OtherInput("x", url, SHA, ()))
        assert (found.state, detail in found.detail) == (AWAY, True)


def test_every_kind_of_input_is_asked_for(images: dict[str, Image], project: Project) -> None:
    found = _inputs(images, project)
    assert found["openmpi-3.1.2"].place == ("sources", "openmpi-3.1.2", "sha256")
    assert found["python-3.6.2-hca45abc_19"].sha256
    assert found["ubuntu bionic"].url.endswith("/ubuntu/dists/bionic/InRelease")
    assert found["nvidia-cuda ubuntu1804"].url.endswith("/ubuntu1804/x86_64/InRelease")
    keyring = project.keyrings / "nvidia-7fa2af80.gpg"
    assert found["nvidia-machine-learning ubuntu1804"].keyring == keyring


def test_a_base_image_is_asked_from_its_registry(
    images: dict[str, Image], project: Project, client: HttpClient
) -> None:
    item = _inputs(images, project)["base ubuntu-18.04"]
    assert item.place == ("operating_systems", "ubuntu-18.04", "image")
    with registry_server() as registry:
        image = registry.store.add_image("bionic")
        here = replace(item, url=f"{registry.name}@{image.digest}")
        assert check_input(client, Sites(), False, here).state == "verified"
        registry.fail(f"GET /manifests/{image.digest}", Fault(200, body=image.content + b" "))
        assert check_input(client, Sites(), False, here).state == "differs"


def test_mirrors_substitutes_and_locks_hold(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    found = _inputs(
        images,
        project,
        mirrors={"open-mpi": "http://m/o", "nvidia-cuda": {"url": "http://m/c", "keyring": "/k"}},
        substitutes={"openmpi-3.1.2.tar.gz": "b" * 64},
    )
    assert found["openmpi-3.1.2"].url.startswith("http://m/o/release/")
    assert found["openmpi-3.1.2"].sha256 == "b" * 64
    assert found["nvidia-cuda ubuntu1804"].keyring == Path("/k")
    without_locks = _inputs(images, Project(tmp_path))
    assert without_locks["python-3.6.2-hca45abc_19"].sha256 is None


@pytest.mark.parametrize(
    ("keyring", "replaced", "detail"),
    [
        ("right.gpg", b"", "signature valid"),
        ("other.gpg", b"", "invalid signature"),
        ("right.gpg", b"bionic", "invalid signature"),
        ("right.gpg", b"-----BEGIN", "no signed index"),
    ],
)
def test_the_signature_of_a_repository(
    server: FaultyServer, client: HttpClient, keyring: str, replaced: bytes, detail: str
) -> None:
    folder = Path(__file__).parent / "signed"
    content = (folder / "InRelease").read_bytes().replace(replaced or b"\0", b"xenial")
    url = server.give("/InRelease", Reply(content))
    item = OtherInput("nvidia", url, None, ("upstreams", "keyring"), True, folder / keyring)
    found = check_input(client, Sites(), False, item)
    right = detail == "signature valid"
    assert found.state == ("verified" if right else "differs")
    assert detail in found.detail
    assert [one.place for one in compare_inputs([found])] == ([] if right else [item.place])


def test_an_index_that_does_not_end_is_refused(server: FaultyServer, client: HttpClient) -> None:
    url = server.give("/InRelease", Reply(bytes(LARGEST_ANSWER + 1)))
    item = OtherInput("nvidia", url, None, ("upstreams", "keyring"), True, Path("/k.gpg"))
    found = check_input(client, Sites(), False, item)
    assert (found.state, "16 MiB" in found.detail) == (AWAY, True)


def test_without_gpgv_a_repository_is_only_reachable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("imgbuild.core.process._SYSTEM_FOLDERS", str(tmp_path))
    state, detail = verify_signature(b"-----BEGIN PGP SIGNED MESSAGE-----\n", tmp_path / "k")
    assert state == "reachable"
    assert "gpgv is not installed" in detail
