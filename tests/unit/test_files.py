"""Files that appear whole or not at all: work folders, locks, stored folders, a store."""

import errno
import os
import re
import tempfile
import threading
from pathlib import Path

import pytest

from imgbuild.errors import InputError, MachineError
from imgbuild.files import (
    ContentStore,
    is_locked,
    lock_owner,
    locked,
    read_named,
    sha256,
    stored_folder,
    work_folder,
    write_text,
    write_texts,
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "imgbuild" / "work"


def test_it_goes_with_the_block_even_by_an_interrupt(state: Path) -> None:
    with pytest.raises(KeyboardInterrupt), work_folder("x"):
        raise KeyboardInterrupt
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("foreign", [False, True])
def test_only_what_a_killed_process_left_goes_with_the_next(
    state: Path, monkeypatch: pytest.MonkeyPatch, *, foreign: bool
) -> None:
    """The folder of a living process stays, as that of another user's, who cannot be asked."""

    def refuse(*_: int) -> None:
        raise PermissionError

    for name in ("999999999-bake-abc", "12x-bake-abc", "1-bake-abc"):
        (state / name).mkdir(parents=True)
    if foreign:
        monkeypatch.setattr("os.kill", refuse)
    with work_folder("x") as own:
        left = {path.name for path in state.iterdir()} - {own.name}
    assert left == {"1-bake-abc", *(["999999999-bake-abc"] if foreign else [])}


def test_without_room_it_says_so(state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_text("a file in its place")
    with pytest.raises(MachineError, match="XDG_STATE_HOME"), work_folder("x"):
        pass


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "file"
    write_text(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(MachineError, match=r"Cannot write .*file: No space left"):
        write_text(path, "new")
    assert [one.name for one in path.parent.iterdir()] == ["file"]
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "user may write"),
        (errno.EROFS, "user may write"),
        (errno.ENOSPC, "df -h"),
    ],
)
def test_a_write_that_is_refused_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(dir: Path, prefix: str) -> None:  # noqa: A002
        raise OSError(number, os.strerror(number), f"{dir}/{prefix}x7f")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    path = tmp_path / "file"
    with pytest.raises(MachineError, match=f"{path}: {os.strerror(number)}.*{remedy}"):
        write_text(path, "new")


@pytest.mark.parametrize("stale", [False, True])
def test_a_folder_in_the_place_of_a_file_changes_nothing(tmp_path: Path, stale: bool) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("old")
    other.mkdir()
    with pytest.raises(IsADirectoryError):
        write_texts({path: "new", **({} if stale else {other: "new"})}, [other] if stale else ())
    assert path.read_text() == "old"
    assert {*tmp_path.iterdir()} == {path, other}


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.lock"

    def refuse() -> None:
        raise PermissionError

    with locked(path):
        assert is_locked(path)
        with pytest.raises(PermissionError), locked(path, refuse):
            pass
        assert lock_owner(path) == str(os.getpid())
    assert not is_locked(path)


def test_who_waits_for_a_lock_is_told(tmp_path: Path) -> None:
    path, order, waiting = tmp_path / "a.lock", list[str](), threading.Event()

    def second() -> None:
        with locked(path, on_wait=waiting.set):
            order.append("second")

    with locked(path):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_a_stored_folder_is_made_once_and_again_when_damaged(tmp_path: Path) -> None:
    final, made = tmp_path / "cache" / "one", list[Path]()

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("x")

    def is_whole(folder: Path) -> bool:
        return (folder / "file").is_file()

    for _ in range(2):
        assert stored_folder(final, make, is_whole) == final
    (final / "file").unlink()
    stored_folder(final, make, is_whole)
    stored_folder(final, make, is_whole, refresh=True)
    assert len(made) == 3

    def fail(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(
        MachineError, match=r"Cannot make .*one: No space .* name another folder \(XDG_"
    ):
        stored_folder(final, fail, lambda _: False)
    assert (final / "file").read_text() == "x"
    assert sorted(path.name for path in final.parent.iterdir()) == [".one.lock", "one"]


def test_a_store_keeps_what_was_begun(tmp_path: Path) -> None:
    store, digest = ContentStore(tmp_path), sha256(b"content")

    def interrupt(part: Path) -> None:
        part.write_bytes(b"con")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put(digest, interrupt)
    assert store.find(digest) is None

    def complete(part: Path) -> None:
        part.write_bytes(part.read_bytes() + b"tent")

    assert store.put(digest, complete).read_bytes() == b"content"
    assert store.put(digest, interrupt) == store.find(digest, 7)
    assert store.find(digest, 8) is None


@pytest.mark.parametrize("kind", ["FIFO", "device", "folder", "large", "bytes"])
def test_what_is_no_text_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/zero") if kind == "device" else tmp_path / "x"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.touch()
        os.truncate(path, 1 << 30)
    elif kind == "bytes":
        path.write_bytes(b"\xff")
    with pytest.raises(InputError, match=re.escape(f"--lock {path}: ")):
        read_named(path, f"--lock {path}")
