"""Files that appear whole or not at all: work folders, locks, stored folders, a store."""

import errno
import os
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import (
    ensure_folder,
    hold_lock,
    is_locked,
    lock_owner,
    read_user_file,
    work_folder,
    write_text,
    write_texts,
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "imgbuild" / "work"


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


def test_it_goes_even_by_an_interrupt_and_without_room_it_says_so(state: Path) -> None:
    with pytest.raises(KeyboardInterrupt), work_folder("x"):
        raise KeyboardInterrupt
    assert list(state.iterdir()) == []
    state.rmdir()
    state.write_text("a file in its place")
    with pytest.raises(MachineError, match="XDG_STATE_HOME"), work_folder("x"):
        pass


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EROFS, "you can write to"), (errno.ENOSPC, "df -h")]
)
def test_a_failed_write_leaves_the_old_file_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    path = tmp_path / "deep" / "file"
    write_text(path, "old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), f"{path}.x7f")

    for module, step in ((Path, "replace"), (tempfile, "mkstemp")):
        monkeypatch.setattr(module, step, refuse)
        with pytest.raises(MachineError, match=rf"{path}: {os.strerror(number)}\. .*{remedy}"):
            write_text(path, "new")
        assert [one.name for one in path.parent.iterdir()] == ["file"]
        assert path.read_text() == "old"


@pytest.mark.parametrize("stale", [False, True])
def test_a_folder_in_the_place_of_a_file_changes_nothing(tmp_path: Path, stale: bool) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("old")
    other.mkdir()
    with pytest.raises(IsADirectoryError):
        write_texts({path: "new", **({} if stale else {other: "new"})}, [other] if stale else ())
    assert path.read_text() == "old"
    assert {*tmp_path.iterdir()} == {path, other}


def test_a_lock_is_held_by_one_and_who_waits_is_told(tmp_path: Path) -> None:
    path, order, waiting = tmp_path / "folder" / "a.lock", list[str](), threading.Event()

    def refuse() -> None:
        raise PermissionError

    def second() -> None:
        with hold_lock(path, on_wait=waiting.set):
            order.append("second")

    with hold_lock(path):
        assert (is_locked(path), lock_owner(path)) == (True, str(os.getpid()))
        with pytest.raises(PermissionError), hold_lock(path, refuse):
            pass
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
    assert not is_locked(path)


def test_ensure_folder_makes_a_damaged_one_again(tmp_path: Path) -> None:
    final, made = tmp_path / "cache" / "one", list[Path]()

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("x")

    def fail(_: Path) -> None:
        raise OSError(28, "No space left on device")

    def is_whole(folder: Path) -> bool:
        return (folder / "file").is_file()

    for _ in range(2):
        assert ensure_folder(final, make, is_whole) == final
    (final / "file").unlink()
    ensure_folder(final, make, is_whole)
    ensure_folder(final, make, is_whole, refresh=True)
    assert len(made) == 3
    with pytest.raises(MachineError, match=r"one: No space .*XDG_"):
        ensure_folder(final, fail, lambda _: False)
    assert is_whole(final)
    assert sorted(path.name for path in final.parent.iterdir()) == [".one.lock", "one"]


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        Path.mkdir,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_bytes(b"x" * (1 << 23)),
        lambda path: path.write_bytes(b"\xff"),
    ],
    ids=["FIFO", "folder", "device", "large", "bytes"],
)
def test_what_is_no_text_is_refused_at_once(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(InputError, match=re.escape(f"--lock {path}: ")):
        read_user_file(path, f"--lock {path}")
