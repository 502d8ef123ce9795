"""A base image out of a registry on loopback."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from faulty_server import FaultyServer, Reply

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.inputs.oci_layout import blob_path, is_pinned, is_whole, read_layout
from imgbuild.inputs.upstream_files import _repository, fetch_layout, find_image
from imgbuild.settings import Settings
from imgbuild.sites import Sites

DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _entry(content: bytes, kind: str = "x/y") -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


class Registry:
    """An image of two layers for two platforms; answers need ``login`` if it is given."""

    config = b'{"architecture": "amd64"}'
    layers = (b"first layer", b"second layer")

    def __init__(self, server: FaultyServer, login: str | None = None) -> None:
        self.server = server
        self.name = server.url.removeprefix("http://") + "/library/ubuntu"
        document = {
            "schemaVersion": 2,
            "mediaType": DOCKER,
            "config": _entry(self.config),
            "layers": [_entry(layer) for layer in self.layers],
        }
        self.manifest = json.dumps(document).encode()
        other = {**_entry(b"arm"), "platform": {"os": "linux", "architecture": "arm64"}}
        own = {**_entry(self.manifest), "platform": {"os": "linux", "architecture": "amd64"}}
        self.index = json.dumps({"mediaType": INDEX, "manifests": [other, own]}).encode()
        realm = f'Bearer realm="{server.url}/token",service="reg",scope="repository:x:pull"'
        for path, content in self._contents().items():
            headers = {"WWW-Authenticate": realm} if login else {}
            server.give(path, Reply(content, login=login, headers=headers))

    def _contents(self) -> dict[str, bytes]:
        blobs = {_digest(blob): blob for blob in (self.config, *self.layers)}
        manifests = {_digest(one): one for one in (self.manifest, self.index)}
        return {
            **{f"/v2/library/ubuntu/blobs/{digest}": blob for digest, blob in blobs.items()},
            **{f"/v2/library/ubuntu/manifests/{d}": one for d, one in manifests.items()},
        }

    @property
    def token_path(self) -> str:
        return "/token?service=reg&scope=repository%3Alibrary%2Fubuntu%3Apull"

    @property
    def reference(self) -> str:
        return f"{self.name}@{_digest(self.index)}"


def test_names_and_their_places() -> None:
    assert str(_repository("ubuntu")) == "docker.io/library/ubuntu"
    assert str(_repository("me/ubuntu")) == "docker.io/me/ubuntu"
    assert str(_repository("127.0.0.1:5000/a:tag")) == "127.0.0.1:5000/a"


def test_an_image_becomes_a_layout(server: FaultyServer, tmp_path: Path) -> None:
    registry = Registry(server)
    path = fetch_layout(registry.reference, "ubuntu-18.04", tmp_path, Sites())
    layout = read_layout(path)
    assert layout.image_id == _digest(registry.config)
    assert path == tmp_path / f"ubuntu-18.04-{layout.image_id[7:19]}"
    assert (path / "blobs" / _digest(registry.manifest).replace(":", "/")).is_file()
    assert layout.reference == f"imgbuild/base:{path.name}"
    assert is_pinned(path, _digest(registry.index))
    assert is_pinned(path, _digest(registry.manifest))
    assert not is_pinned(path, _digest(registry.config))
    (path / blob_path(_digest(registry.index))).write_bytes(registry.index + b" ")
    assert not is_pinned(path, _digest(registry.index))
    assert is_whole(fetch_layout(registry.reference, "ubuntu-18.04", tmp_path, Sites()))
    assert is_pinned(path, _digest(registry.index))
    asked = len(server.asked)
    assert fetch_layout(registry.reference, "ubuntu-18.04", tmp_path, Sites()) == path
    assert not [one for one in server.asked[asked:] if "/blobs/" in one.path]
    # A layer that was damaged since, its size unchanged, is fetched again.
    layer = path / blob_path(_digest(registry.layers[1]))
    layer.write_bytes(b"SECOND layer")
    assert fetch_layout(registry.reference, "ubuntu-18.04", tmp_path, Sites()) == path
    assert layer.read_bytes() == registry.layers[1]


def test_a_manifest_need_not_name_its_type(server: FaultyServer, tmp_path: Path) -> None:
    """OCI leaves it open."""
    registry = Registry(server)
    document = json.loads(registry.manifest)
    del document["mediaType"]
    content = json.dumps(document).encode()
    server.give(f"/v2/library/ubuntu/manifests/{_digest(content)}", Reply(content))
    path = fetch_layout(f"{registry.name}@{_digest(content)}", "x", tmp_path, Sites())
    assert read_layout(path).image_id == _digest(registry.config)


@pytest.mark.parametrize(
    ("netrc", "sent"), [("", None), ("machine 127.0.0.1 login u password s\n", "Basic dTpz")]
)
def test_a_token_is_requested_with_the_login_of_the_netrc_file(
    server: FaultyServer, tmp_path: Path, netrc: str, sent: str | None
) -> None:
    registry = Registry(server, login="Bearer abc")
    server.give(registry.token_path, Reply(b'{"token": "abc"}'))
    (tmp_path / "netrc").write_text(netrc)
    find_image(registry.reference, Sites(settings=Settings(netrc=str(tmp_path / "netrc"))))
    asked = [asked for asked in server.asked if asked.path == registry.token_path]
    assert {one.authorization for one in asked} == {sent}


def test_a_registry_that_does_not_give_the_image(server: FaultyServer) -> None:
    with pytest.raises(MachineError, match="requires a login"):
        find_image(Registry(server, login="Bearer abc").reference, Sites())
    error = b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'
    digest = "sha256:" + "0" * 64
    server.give(f"/v2/library/ubuntu/manifests/{digest}", Reply(error, 404))
    with pytest.raises(MachineError, match="the registry does not have it"):
        find_image(f"{Registry(server).name}@{digest}", Sites())
    with pytest.raises(MachineError, match="no connection"):
        find_image(f"127.0.0.1:9/x@{digest}", Sites())


def test_a_manifest_that_cannot_be_used(server: FaultyServer) -> None:
    registry = Registry(server)
    folder = "/v2/library/ubuntu/manifests/"
    server.give(f"{folder}{_digest(registry.manifest)}", Reply(registry.manifest + b" "))
    with pytest.raises(CheckFailedError, match="gave content with digest sha256:"):
        find_image(registry.reference, Sites())
    nothing = json.dumps({"mediaType": INDEX, "manifests": []}).encode()
    server.give(f"{folder}{_digest(nothing)}", Reply(nothing))
    with pytest.raises(CheckFailedError, match="no image for linux/amd64"):
        find_image(f"{registry.name}@{_digest(nothing)}", Sites())


@pytest.fixture(autouse=True)
def _no_docker_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
