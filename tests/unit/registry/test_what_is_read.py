"""What a registry may not do: answer with another content, or be spoken to in the clear."""

import json
from typing import Any

import pytest
from registry_client import opened
from registry_server import Fault, registry_server

from imgbuild.errors import CheckFailedError
from imgbuild.http import TransientError
from imgbuild.registry.connection import RegistryConnection
from imgbuild.registry.repository import OCI_MANIFEST, Manifest, digest_of, parse_repository


class Deaf:
    """A client that finds nobody; ``asked`` are the addresses."""

    closed = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, _: str, url: str, *__: Any, **___: Any) -> None:
        self.asked.append(url)
        raise TransientError("wrong version number")


@pytest.mark.parametrize("host", ["registry.example.org", "192.0.2.1:5000", "registry:80"])
def test_no_other_machine_is_spoken_to_in_the_clear(host: str) -> None:
    client: Any = Deaf()
    connection = RegistryConnection(parse_repository(f"{host}/team/app", "--to"), client)
    with pytest.raises(TransientError):
        connection.ask("reading", "GET", "/tags/list")
    assert client.asked
    assert all(url.startswith("https://") for url in client.asked)


@pytest.mark.parametrize("told", [True, False])
def test_a_digest_means_its_content_whatever_the_registry_tells(told: bool) -> None:
    wanted, other = b'{"a": 1}', b'{"a": 2}'
    with registry_server() as server:
        registry = opened(server.name)
        headers = {"Docker-Content-Digest": digest_of(other)} if told else {}
        path = f"GET /manifests/{digest_of(wanted)}"
        server.fail(path, Fault(200, {**headers, "Content-Type": OCI_MANIFEST}, other))
        with pytest.raises(CheckFailedError, match="damaged"):
            registry.manifest(digest_of(wanted))
        registry.close()


def test_an_engine_calls_an_image_by_its_manifest_or_its_configuration() -> None:
    content = json.dumps({"config": {"digest": "sha256:c"}, "layers": []}).encode()
    manifest = Manifest("sha256:m", OCI_MANIFEST, content)
    found = {one for one in ("sha256:c", "sha256:m", "sha256:x", "") if manifest.is_image(one)}
    assert found == {"sha256:c", "sha256:m"}
