"""Where mmdebstrap works, and whether it gets mounts of its own."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.inputs import bootstrap, scratch
from imgbuild.inputs.scratch import scratch_folder


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands in for /dev/shm on a machine with all the room needed."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_SHARED_MEMORY", folder)
    monkeypatch.setattr(scratch, "_ROOM", 1)
    return folder


def place() -> Path:
    with scratch_folder("x") as folder:
        return folder.parent


def test_memory_is_used_where_there_is_room(memory: Path) -> None:
    assert place() == memory
    assert list(memory.iterdir()) == []


def test_folder_of_the_user_wins(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(memory.parent))
    assert place() == memory.parent


def _no_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scratch, "_available_memory", lambda: 0)


def _no_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scratch, "_ROOM", 1 << 60)


def _no_programs(patch: pytest.MonkeyPatch) -> None:
    flags = os.statvfs("/")
    values = [*flags]
    values[8] |= os.ST_NOEXEC
    patch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))


def _absent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scratch, "_SHARED_MEMORY", Path("/nonexistent"))


@pytest.mark.parametrize("lack", [_no_memory, _no_disk, _no_programs, _absent])
def test_disk_is_used_where_memory_will_not_do(
    memory: Path, monkeypatch: pytest.MonkeyPatch, lack: Callable[[pytest.MonkeyPatch], None]
) -> None:
    lack(monkeypatch)
    assert place() == memory.parent


def test_only_root_needs_a_namespace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unshare = tmp_path / "unshare"
    unshare.write_text("#!/bin/sh\nexit 0\n")
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert bootstrap._own_mounts() == ["unshare", "--mount", "--"]
    unshare.write_text("#!/bin/sh\nexit 1\n")
    assert bootstrap._own_mounts() == [], "a container's root may not make one"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bootstrap._own_mounts() == []
