"""The real client against a registry of this process: what it asks, and what faults it survives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from registry_server import RegistryServer, registry_server

from imgbuild.registry.asking import Asking
from imgbuild.registry.digest import digest_of
from imgbuild.registry.exchange import Exchange
from imgbuild.registry.http import HttpRegistry
from imgbuild.registry.media_types import OCI_MANIFEST
from imgbuild.registry.patience import Patience
from imgbuild.registry.repository import parse_repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imgbuild.registry.credentials import FindCredentials

ABSENT = "sha256:" + "0" * 64


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def registry(server: RegistryServer, said: list[str]) -> Iterator[HttpRegistry]:
    opened = opened_registry(server.name, said)
    yield opened
    opened.close()


def opened_registry(
    name: str, said: list[str], find: FindCredentials = lambda _host: None, attempts: int = 3
) -> HttpRegistry:
    patience = Patience(attempts, 0.0)
    exchange = Exchange(verify=True, seconds=(2.0, 2.0))
    return HttpRegistry(
        Asking(parse_repository(name, "test"), exchange, patience, find, said.append)
    )


def manifest_of(registry: HttpRegistry, content: bytes = b"{}") -> bytes:
    digest = registry.put_blob(content)
    entry = {"mediaType": "x/y", "digest": digest, "size": len(content)}
    return json.dumps({"schemaVersion": 2, "config": entry, "layers": []}).encode()


def test_an_empty_repository(registry: HttpRegistry) -> None:
    assert registry.tags() == ()
    assert registry.head("1.0") is None
    assert registry.manifest("1.0") is None


def test_what_is_written_is_read(registry: HttpRegistry, server: RegistryServer) -> None:
    content = manifest_of(registry)
    digest = registry.put_manifest("1.0", content, OCI_MANIFEST)
    assert registry.head("1.0") == registry.head(digest) == digest == digest_of(content)
    found = registry.manifest("1.0")
    assert found
    assert (found.digest, found.media_type, found.content) == (digest, OCI_MANIFEST, content)
    assert registry.blob(digest_of(b"{}")) == b"{}"
    assert registry.tags() == ("1.0",)
    server.asked.clear()
    registry.put_blob(b"{}")
    assert server.lines() == [f"HEAD /blobs/{digest_of(b'{}')}"]
