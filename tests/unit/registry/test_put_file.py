"""Files as blobs: sent as they are read, begun anew after a fault, and never taken when wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from registry_client import ATTEMPTS, LOGIN, opened
from registry_server import Fault, RegistryServer, registry_server

from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.registry.digest import digest_of
from imgbuild.registry.fake import MemoryRegistry
from imgbuild.registry.file_content import FileContent
from imgbuild.registry.overlay import OverlayRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = bytes(range(256)) * 400
DIGEST = digest_of(CONTENT)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "layer"
    path.write_bytes(CONTENT)
    return path


def test_a_file_arrives_once(server: RegistryServer, file: Path) -> None:
    registry = opened(server.name)
    assert not registry.has_blob(DIGEST)
    heard: list[int] = []
    registry.put_file(FileContent(file, DIGEST, heard.append))
    assert server.store.blobs[DIGEST] == CONTENT
    assert heard == sorted(heard)
    assert heard[-1] == len(CONTENT)
    assert len(heard) > 3
    assert registry.has_blob(DIGEST)
    server.asked.clear()
    registry.put_file(FileContent(file, DIGEST))
    assert server.lines() == [f"HEAD /blobs/{DIGEST}"]


@pytest.mark.parametrize("line", ["HEAD", "POST", "PUT"])
@pytest.mark.parametrize("fault", [Fault(reset=True), Fault(503), Fault(429)], ids=str)
def test_a_fault_that_passes(server: RegistryServer, file: Path, line: str, fault: Fault) -> None:
    server.fail(line, fault)
    opened(server.name).put_file(FileContent(file, DIGEST))
    assert server.store.blobs[DIGEST] == CONTENT


def test_a_fault_that_stays(server: RegistryServer, file: Path) -> None:
    server.fail("PUT", *[Fault(500)] * ATTEMPTS)
    with pytest.raises(
        MachineError, match=rf"writing {DIGEST} failed: it answered 500 \(3 tries\)"
    ):
        opened(server.name).put_file(FileContent(file, DIGEST))
    assert DIGEST not in server.store.blobs


def test_a_login_is_sent_for_it(server: RegistryServer, file: Path) -> None:
    server.wanted = {LOGIN.basic}
    opened(server.name, lambda _: LOGIN).put_file(FileContent(file, DIGEST))
    assert server.store.blobs[DIGEST] == CONTENT


def test_a_file_of_another_digest_is_refused(server: RegistryServer, file: Path) -> None:
    server.fail("PUT", Fault(400, {}, b'{"errors": [{"code": "DIGEST_INVALID"}]}'))
    with pytest.raises(CheckFailedError, match="was refused: it answered 400: DIGEST_INVALID"):
        opened(server.name).put_file(FileContent(file, digest_of(b"other")))
    memory = MemoryRegistry()
    with pytest.raises(CheckFailedError, match="digest invalid"):
        memory.put_file(FileContent(file, digest_of(b"other")))
    assert memory.blobs == {}


def test_who_is_told_may_end_it(server: RegistryServer, file: Path) -> None:
    class EndedError(Exception):
        pass

    def end(_count: int) -> None:
        raise EndedError

    with pytest.raises(EndedError):
        opened(server.name).put_file(FileContent(file, DIGEST, end))
    assert DIGEST not in server.store.blobs


def test_a_registry_that_is_only_looked_at_gets_nothing(file: Path) -> None:
    below = MemoryRegistry()
    registry = OverlayRegistry(below)
    registry.put_file(FileContent(file, DIGEST))
    assert registry.has_blob(DIGEST)
    assert registry.blob(DIGEST) == CONTENT
    assert below.blobs == {}
    below.put_blob(b"x")
    assert registry.has_blob(digest_of(b"x"))
