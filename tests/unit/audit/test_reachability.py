"""Which inputs an audit asks for, and how a repository's signature is judged."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from faulty_server import FaultyServer, Reply

from imgbuild.audit.reachability import (
    AWAY,
    OtherInput,
    check_input,
    compare_inputs,
    other_inputs,
    verify_signature,
)
from imgbuild.http import HttpClient
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import Settings, Sites

pytest_plugins = ("audit_fixtures",)
SHA = hashlib.sha256(b"content").hexdigest()


def _inputs(
    images: dict[str, Image], project: Project, **settings: object
) -> dict[str, OtherInput]:
    chosen = Settings.model_validate(settings)
    image = images["tf-2.2-gpu-ubuntu"]
    sites = Sites(image.matrix.upstream_urls, chosen)
    return {item.name: item for item in other_inputs([image], project, sites)}


def _check(client: HttpClient, item: OtherInput, *, download: bool = False) -> OtherInput:
    return check_input(client, Sites(), download, item)


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
    server.give("/x.tar.gz", Reply(b"content"))
    place = ("sources", "x", "sha256")
    found = _check(
        client, OtherInput("x", f"{server.url}/x.tar.gz", sha256, place), download=download
    )
    assert found.state == state
    assert [c.place for c in compare_inputs([found])] == ([place] if state == "differs" else [])


def test_inputs_that_do_not_answer(server: FaultyServer, client: HttpClient) -> None:
    addresses = [f"{server.url}/absent", "http://127.0.0.1:9/x", "http://no.such.invalid/x"]
    states = [_check(client, OtherInput("x", url, SHA, ())) for url in addresses]
    assert {s.state for s in states} == {AWAY}
    assert [s.detail for s in states][:2] == ["404 Not Found", "Connection refused"]


def test_every_kind_of_input_is_asked_for(images: dict[str, Image], project: Project) -> None:
    found = _inputs(images, project)
    assert found["openmpi-3.1.2"].place == ("sources", "openmpi-3.1.2", "sha256")
    assert found["python-3.6.2-hca45abc_19"].sha256
    assert found["ubuntu bionic"].url.endswith("/ubuntu/dists/bionic/InRelease")
    assert found["nvidia-cuda ubuntu1804"].url.endswith("/ubuntu1804/x86_64/InRelease")
    keyring = found["nvidia-machine-learning ubuntu1804"].keyring
    assert keyring is not None
    assert keyring.name == "nvidia-7fa2af80.gpg"


def test_a_base_image_is_asked_from_its_registry(
    images: dict[str, Image], project: Project, server: FaultyServer, client: HttpClient
) -> None:
    item = _inputs(images, project)["base ubuntu-18.04"]
    assert item.place == ("operating_systems", "ubuntu-18.04", "image")
    manifest = json.dumps(
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "c", "digest": "sha256:" + "1" * 64, "size": 1},
            "layers": [{"mediaType": "l", "digest": "sha256:" + "2" * 64, "size": 26_000_000}],
        }
    ).encode()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    host = server.url.removeprefix("http://")
    for content, state in ((manifest, "verified"), (manifest + b" ", "differs")):
        server.give(f"/v2/ubuntu/manifests/{digest}", Reply(content))
        here = replace(item, url=f"{host}/ubuntu@{digest}")
        assert _check(client, here).state == state


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


@pytest.fixture
def signed() -> tuple[bytes, Path, Path]:
    """Return a signed index, the keyring of its key, and one of another key."""
    folder = Path(__file__).parent / "signed"
    return (folder / "InRelease").read_bytes(), folder / "right.gpg", folder / "other.gpg"


def test_a_signature_is_judged(signed: tuple[bytes, Path, Path]) -> None:
    index, right, other = signed
    assert verify_signature(index, right)[0] == "verified"
    assert verify_signature(index, other)[0] == "differs"
    assert verify_signature(index.replace(b"bionic", b"xenial"), right)[0] == "differs"
    assert verify_signature(b"<html>login</html>", right) == ("differs", "no signed index")


def test_a_repository_with_another_key_is_a_contradiction(
    signed: tuple[bytes, Path, Path], server: FaultyServer, client: HttpClient
) -> None:
    index, right, other = signed
    server.give("/InRelease", Reply(index))
    place = ("upstreams", "nvidia-cuda", "keyring")
    url = f"{server.url}/InRelease"
    for keyring, state in ((right, "verified"), (other, "differs")):
        item = OtherInput("nvidia-cuda", url, None, place, True, keyring)
        found = _check(client, item)
        assert found.state == state
        assert [c.place for c in compare_inputs([found])] == ([place] if state == "differs" else [])


def test_without_gpgv_a_repository_is_only_reachable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("imgbuild.process._SYSTEM_FOLDERS", str(tmp_path))
    state, detail = verify_signature(b"-----BEGIN PGP SIGNED MESSAGE-----\n", tmp_path / "k")
    assert state == "reachable"
    assert "gpgv is not installed" in detail
