"""Files and folders that appear whole or not at all: atomic writes, locks, a store by sha256."""

import codecs
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.process import run
from imgbuild.core.user_folders import state_dir

#: Every stored file has this time, 1980-01-02, so that a layer with it is always the same.
FILE_TIME = 315619200
#: Bytes of a text that a user names; the largest lock has a tenth of it.
LARGEST_TEXT = 4 << 20
#: The most levels of JSON that somebody has put into a registry; our own have ten.
_DEEPEST = 100


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def json_sha256(value: object) -> str:
    """Return the sha256, in hexadecimal, of a value written as JSON; keys keep their order."""
    return sha256(json.dumps(value).encode())


def parse_json(content: str | bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return JSON that anybody may have written.

    ValueError: it is none, is nested too deeply, or has a number without an end.
    """
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def parse_strict_json(content: str | bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return JSON that every parser reads alike: no object has two keys that differ only in case.

    Go matches the keys of a struct without regard to case, and the last one wins (encoding/json,
    "Unmarshal"); Python has both. So one document could be two different images.

    The same holds for another encoding than UTF-8, halves of characters and numbers without an end:
    Go refuses or replaces them.

    ValueError: as `parse_json`, or it has one of these, or over `_DEEPEST` levels.
    """
    text = content if isinstance(content, str) else content.decode("utf-8")
    try:
        document = json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_distinct_keys
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    _check_depth(document)
    json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return document


def _check_depth(document: object) -> None:
    """Raise ValueError for JSON that copying or printing would not come to the end of."""
    containers = [document]
    for _ in range(_DEEPEST):
        children: list[object] = []
        for container in containers:
            if isinstance(container, dict):
                children.extend(container.values())
            elif isinstance(container, list):
                children.extend(container)
        containers = [child for child in children if isinstance(child, dict | list)]
        if not containers:
            return
    raise ValueError("nested too deeply")


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, str] = {}
    for key, _ in pairs:
        folded = key.casefold()
        if folded in seen:
            raise ValueError(
                f"the keys {seen[folded][:80]!r} and {key[:80]!r} are equal but for case"
            )
        seen[folded] = key
    return dict(pairs)


def read_user_file(
    path: Path, what: str = "", hint: str = "", *, largest: int = LARGEST_TEXT
) -> str:
    """Return the text of a file that a user names; ``what`` and ``hint`` are for the error.

    Windows' editors write a byte order mark, and its PowerShell UTF-16.

    InputError: it is no file, has more than ``largest`` bytes, or is no such text.
    """
    try:
        # A FIFO would be waited for, and a device has no end.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            known = os.fstat(file.fileno())
            if not stat.S_ISREG(known.st_mode) and known.st_rdev != Path(os.devnull).stat().st_rdev:
                raise OSError(0, "a device or a pipe, not a file")  # noqa: TRY301
            content = file.read(largest + 1)
        if len(content) > largest:
            raise OSError(0, f"over {largest} bytes, too large for such a file")  # noqa: TRY301
        # A mark alone is no text.
        wide = len(content) > 2 and content[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
        return content.decode("utf-16" if wide else "utf-8-sig")
    except (OSError, ValueError) as error:
        said = (isinstance(error, OSError) and error.strerror) or "not UTF-8 text"
        raise InputError(f"{what or path}: {said}.{hint and ' '}{hint}") from None


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _disk_errors(what: str, folder: Path, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The temporary name of a file in the folder would only confuse.
        outside = error.filename and Path(error.filename).parent != folder
        place = f" ({error.filename})" if outside else ""
        remedy = f"Make {folder} a folder that this user may write"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = f"Free space there (`df -h {folder}`)"
        raise MachineError(
            f"Cannot {what}: {error.strerror or error}{place}. {remedy}{hint}."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` as `write_texts` does; a kill in between leaves the old file."""
    write_texts({path: text})


def write_texts(texts: Mapping[Path, str], stale: Collection[Path] = ()) -> list[Path]:
    """Replace files by texts, each in one step, and remove ``stale`` ones: all of it or nothing.

    Everything is written beside its place before the first file is replaced. Return what changed.
    MachineError: a folder cannot be written, or the disk is full. OSError: what is there cannot be
    read: a folder, perhaps.
    """
    old = {path: path.read_bytes() for path in (*texts, *stale) if path.exists()}
    changed = [*(path for path, text in texts.items() if old.get(path) != text.encode()), *stale]
    staged: dict[Path, Path] = {}
    with ExitStack() as leftovers:
        for path in changed:
            with _disk_errors(f"write {path}", path.parent, "; nothing was changed"):
                path.parent.mkdir(parents=True, exist_ok=True)
                handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
                staged[path] = Path(name)
                leftovers.callback(staged[path].unlink, missing_ok=True)
                with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                    file.write(texts.get(path, ""))
                staged[path].chmod(0o644)
        for done, path in enumerate(staged):
            with _disk_errors(f"write {path}", path.parent, f"; files changed already: {done}"):
                staged[path].replace(path)
                if path in stale:
                    path.unlink()
    return changed


@contextmanager
def work_folder(purpose: str) -> Iterator[Path]:
    """Give an empty folder, removed after the block; after a kill, by the next `work_folder`.

    MachineError: the state folder cannot be written.
    """
    parent = state_dir() / "work"
    hint = ", or set XDG_STATE_HOME to another folder"
    with _disk_errors(f"work in {parent}", parent, hint):
        parent.mkdir(parents=True, exist_ok=True)
        for left in abandoned_work(parent):
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-{purpose}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def abandoned_work(parent: Path) -> Iterator[Path]:
    """Yield the work folders of killed processes; a reused process id keeps one for a while."""
    for folder in parent.glob("[0-9]*-*"):
        if not _is_running(folder.name.partition("-")[0]):
            yield folder


def _is_running(process: str) -> bool:
    """Return whether there is a process of this id; not every system has /proc."""
    try:
        os.kill(int(process), 0)  # no signal, but all errors
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


@contextmanager
def hold_lock(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a lock file; the kernel releases it when this process dies, however it does.

    ``on_wait`` is called once before waiting for another process; it may raise instead. OSError:
    the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file stays afterwards: removing it would let two processes lock two files of one name.
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def is_locked(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def lock_owner(path: Path) -> str:
    """Return the process id that last took the lock, or ``unknown``."""
    try:
        return path.read_text(encoding="utf-8").strip() or "unknown"
    except OSError:
        return "unknown"


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def ensure_folder(
    final: Path,
    make: Callable[[Path], None],
    is_whole: Callable[[Path], bool],
    *,
    refresh: bool = False,
    on_wait: Callable[[], None] = lambda: None,
) -> Path:
    """Return ``final``, made by ``make(empty folder)`` unless ``is_whole(final)`` already.

    It is made beside its place and renamed. ``refresh`` makes it in any case. ``on_wait`` is called
    once if another process makes the same folder, which is then reused. MachineError: the cache
    cannot be written (permissions, disk full).
    """
    hint = ", or name another folder (XDG_CACHE_HOME for the cache)"
    with _disk_errors(f"make {final}", final.parent, hint), hold_lock(_lock_path(final), on_wait):
        for left in final.parent.glob(f".{final.name}.tmp-*"):
            remove_tree(left)
        if refresh or not is_whole(final):
            temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.tmp-", dir=final.parent))
            try:
                fresh = temporary / "new"
                fresh.mkdir(mode=0o755)
                make(fresh)
                if final.exists() or final.is_symlink():
                    final.rename(temporary / "old")
                fresh.rename(final)
            finally:
                remove_tree(temporary)
    return final


def remove_tree(path: Path) -> None:
    """Remove ``path`` and all below it on the same file system; absent is fine.

    Files of subordinate ids, which mmdebstrap makes without root, are removed from inside a user
    namespace. Source: mmdebstrap(1), "unshare".
    """
    remove = ["rm", "-rf", "--one-file-system", "--", str(path)]
    # A process that was just killed may write one more file into the folder.
    for pause in (0.1, 0.1, 0.0):
        if run(remove).ok:
            return
        time.sleep(pause)
    run(["mmdebstrap", "--unshare-helper", *remove])
    run(remove)


@dataclass(frozen=True)
class ContentStore:
    """Files by their sha256. A file in it is whole and right, whenever a process was killed."""

    folder: Path

    def path(self, digest: str) -> Path:
        return self.folder / "sha256" / digest[:2] / digest

    def find(self, digest: str, size: int | None = None) -> Path | None:
        """Return the file if it is there, and of that size in bytes where one is given."""
        path = self.path(digest)
        return path if path.is_file() and size in {None, path.stat().st_size} else None

    def put(
        self,
        digest: str,
        make: Callable[[Path], object],
        size: int | None = None,
        *,
        name: str = "a file",
    ) -> Path:
        """Return the file, made by ``make(part)`` if it is not there; ``name`` is for the error.

        ``part`` stays when ``make`` raises, so that the next call can continue it. MachineError:
        the store cannot be written (permissions, disk full).
        """
        final = self.path(digest)
        if self.find(digest, size):
            return final
        hint = "; what has come so far is continued next time"
        with (
            _disk_errors(f"keep {name} in {self.folder}", self.folder, hint),
            hold_lock(_lock_path(final)),
        ):
            if not self.find(digest, size):
                part = final.with_name(f"{final.name}.part")
                make(part)
                part.chmod(0o644)
                os.utime(part, (FILE_TIME, FILE_TIME))
                part.replace(final)
        return final


def link_or_copy(source: Path, target: Path) -> None:
    """Give a stored file another name; copied where a hard link cannot be."""
    try:
        target.hardlink_to(source)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
