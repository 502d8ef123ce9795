"""A base image out of a registry on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.settings import Settings
from imgbuild.inputs.oci_layout import blob_path, is_pinned, is_whole, read_layout
from imgbuild.inputs.upstream_files import fetch_layout, find_image
from imgbuild.net.repository import INDEXES, Manifest
from imgbuild.net.repository_client import RegistryClient
from imgbuild.net.sites import Sites
from support.registry_server import Fault, RegistryServer, registry_server

LAYERS = (b"first layer", b"second layer")
NOWHERE = "sha256:" + "0" * 64


@pytest.fixture
def registry(
    _hasty: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[RegistryServer]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with registry_server() as started:
        yield started


def put_platforms(registry: RegistryServer) -> tuple[Manifest, Manifest]:
    """Put an image for two platforms there; return the list of them, and that for this one."""
    store = registry.store
    images = {"arm64": store.add_image("arm"), "amd64": store.add_image("own", layers=LAYERS)}
    platforms = [
        {"digest": image.digest, "platform": {"os": "linux", "architecture": architecture}}
        for architecture, image in images.items()
    ]
    index = json.dumps({"mediaType": INDEXES[0], "manifests": platforms}).encode()
    return store.manifests[store.put_manifest("all", index, INDEXES[0])], images["amd64"]


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("ubuntu", "docker.io/library/ubuntu"),
        ("me/ubuntu", "docker.io/me/ubuntu"),
        ("127.0.0.1:5000/a:tag", "127.0.0.1:5000/a"),
    ],
)
def test_a_name_without_a_registry_is_docker_hub_s(
    monkeypatch: pytest.MonkeyPatch, name: str, repository: str
) -> None:
    monkeypatch.setattr(RegistryClient, "manifest", lambda *_: Manifest(NOWHERE, "", b"{}"))
    assert find_image(f"{name}@{NOWHERE}", Sites())[0].name == repository


def test_an_image_becomes_a_layout(registry: RegistryServer, tmp_path: Path) -> None:
    index, image = put_platforms(registry)

    def fetch() -> Path:
        return fetch_layout(f"{registry.name}@{index.digest}", "ubuntu-18.04", tmp_path, Sites())

    path, document = fetch(), image.document()
    layout = read_layout(path)
    assert layout.digest == document["config"]["digest"]
    assert path == tmp_path / f"ubuntu-18.04-{str(layout.digest)[7:19]}"
    assert layout.reference == f"imgbuild/base:{path.name}"
    assert (path / blob_path(image.digest)).is_file()
    assert is_pinned(path, image.digest)
    assert not is_pinned(path, str(layout.digest))
    # A list or a layer that was changed since, its size unchanged, is fetched again.
    layer = document["layers"][1]["digest"]
    for digest, old, new in ((index.digest, b"arm64", b"arm65"), (layer, b"second", b"Second")):
        content = (path / blob_path(digest)).read_bytes()
        (path / blob_path(digest)).write_bytes(content.replace(old, new))
        assert not (is_whole(path) and is_pinned(path, index.digest))
        assert fetch() == path
        assert is_whole(path)
        assert is_pinned(path, index.digest)
    asked = len(registry.asked)
    assert fetch() == path
    assert not [one for one in registry.asked[asked:] if "/blobs/" in one.path]


def test_a_manifest_need_not_name_its_type(registry: RegistryServer, tmp_path: Path) -> None:
    """OCI leaves it open."""
    image = put_platforms(registry)[1]
    document = {key: value for key, value in image.document().items() if key != "mediaType"}
    digest = registry.store.put_manifest("x", json.dumps(document).encode(), image.media_type)
    path = fetch_layout(f"{registry.name}@{digest}", "x", tmp_path, Sites())
    assert read_layout(path).digest == document["config"]["digest"]


@pytest.mark.parametrize(
    ("netrc", "sent"), [("", ""), ("machine 127.0.0.1 login u password s\n", "Basic dTpz")]
)
def test_a_token_is_requested_with_the_login_of_the_netrc_file(
    registry: RegistryServer, tmp_path: Path, netrc: str, sent: str
) -> None:
    index, _ = put_platforms(registry)
    registry.wanted = {"Bearer abc"}
    registry.challenge = f'Bearer realm="http://{registry.host}/token",scope="repository:x:pull"'
    registry.tokens = [Fault(200, body=b'{"token": "abc"}')]
    (tmp_path / "netrc").write_text(netrc)
    settings = Settings(netrc=str(tmp_path / "netrc"))
    find_image(f"{registry.name}@{index.digest}", Sites(settings=settings))
    asked = [one for one in registry.asked if one.path.startswith("/token")]
    assert {one.authorization for one in asked} == {sent}


def test_a_registry_that_does_not_give_the_image(registry: RegistryServer) -> None:
    with pytest.raises(MachineError, match=r"registry does not have .*/team/app@"):
        find_image(f"{registry.name}@{NOWHERE}", Sites())
    registry.wanted = {"nobody"}
    with pytest.raises(MachineError, match="netrc"):
        find_image(f"{registry.name}@{NOWHERE}", Sites())
    with pytest.raises(MachineError, match="no connection"):
        find_image(f"127.0.0.1:9/x@{NOWHERE}", Sites())


def test_a_manifest_that_cannot_be_used(registry: RegistryServer) -> None:
    index, image = put_platforms(registry)
    registry.fail(f"GET /manifests/{image.digest}", Fault(200, body=image.content + b" "))
    with pytest.raises(CheckFailedError, match="content with digest sha256:"):
        find_image(f"{registry.name}@{index.digest}", Sites())
    nothing = json.dumps({"mediaType": INDEXES[0], "manifests": []}).encode()
    digest = registry.store.put_manifest("nothing", nothing, INDEXES[0])
    with pytest.raises(CheckFailedError, match="no image for linux/amd64"):
        find_image(f"{registry.name}@{digest}", Sites())
