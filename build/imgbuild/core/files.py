"""Write files and folders atomically, hold lock files, and store files by sha256."""

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

#: Modification time of stored files, 1980-01-02; a fixed time keeps layers reproducible.
FILE_TIME = 315619200
#: Size limit for text files that a user names, in bytes; the largest lock has a tenth of it.
LARGEST_TEXT = 4 << 20
#: Nesting limit for JSON from a registry; imgbuild's own JSON has ten levels.
_DEEPEST = 100


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def json_sha256(value: object) -> str:
    """Return the hexadecimal sha256 of a value's JSON text; the order of keys matters."""
    return sha256(json.dumps(value).encode())


def parse_json(content: str | bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Parse JSON from an untrusted source.

    ValueError: the text is not JSON, is nested too deeply, or has a NaN or infinite number.
    """
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a valid JSON number")


def parse_strict_json(content: str | bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Parse JSON that every parser reads the same way.

    No object may have two keys that differ only in case. Go matches the keys of a struct without
    regard to case, and the last one wins; Python keeps both. The same document could therefore
    describe two different images. Source: encoding/json, "Unmarshal".

    Encodings other than UTF-8, lone surrogates, and NaN or infinite numbers are errors as well,
    because Go refuses or replaces them.

    ValueError: as in `parse_json`, the text has one of these faults, or it has more than `_DEEPEST`
    levels.
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
    """Raise ValueError for JSON nested too deeply to copy or print."""
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
            raise ValueError(f"the keys {seen[folded][:80]!r} and {key[:80]!r} differ only in case")
        seen[folded] = key
    return dict(pairs)


def read_user_file(
    path: Path, what: str = "", hint: str = "", *, largest: int = LARGEST_TEXT
) -> str:
    """Return the text of a file that a user names; ``what`` and ``hint`` are for the error.

    The text is UTF-8, also with a byte order mark as Windows editors write, or PowerShell's UTF-16.

    InputError: the path is not a file, the file has more than ``largest`` bytes, or it has another
    encoding.
    """
    try:
        # Opening a FIFO would block, and a device never ends.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            known = os.fstat(file.fileno())
            if not stat.S_ISREG(known.st_mode) and known.st_rdev != Path(os.devnull).stat().st_rdev:
                raise OSError(0, "a device or a pipe, not a file")  # noqa: TRY301
            content = file.read(largest + 1)
        if len(content) > largest:
            raise OSError(0, f"larger than {largest} bytes, the limit for this file")  # noqa: TRY301
        # A byte order mark alone is not text.
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
        # Leave out temporary file names in the folder, because they would confuse users.
        outside = error.filename and Path(error.filename).parent != folder
        place = f" ({error.filename})" if outside else ""
        remedy = f"Make sure that you can write to {folder}"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = f"Free up space (`df -h {folder}`)"
        raise MachineError(
            f"Cannot {what}: {error.strerror or error}{place}. {remedy}{hint}."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Replace the content of ``path`` as `write_texts` does; a kill leaves the old file."""
    write_texts({path: text})


def write_texts(texts: Mapping[Path, str], stale: Collection[Path] = ()) -> list[Path]:
    """Replace the content of files atomically, remove ``stale`` files, and return the changed ones.

    Every new content is written to a temporary file before the first file is replaced.

    MachineError: a folder cannot be written, or the disk is full.
    OSError: an old file cannot be read, for example because it is a folder.
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
    """Create an empty folder and remove it after the block.

    If the process is killed, the next `work_folder` removes it.

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
    """Yield the work folders of killed processes, unless another process has the same id now."""
    for folder in parent.glob("[0-9]*-*"):
        if not _is_running(folder.name.partition("-")[0]):
            yield folder


def _is_running(process: str) -> bool:
    """Return whether a process has this id; not every system has /proc."""
    try:
        os.kill(int(process), 0)  # only checks for errors and sends no signal
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


@contextmanager
def hold_lock(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a lock file; the kernel releases the lock when this process ends, even if it is killed.

    ``on_wait`` is called once before waiting for another process, and may raise to avoid the wait.

    OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keep the file afterwards: if it were removed, two processes could lock different files with
    # the same name.
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
    """Return the id of the process that last held the lock, or ``unknown``."""
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
    """Return the folder ``final``; create it with ``make(empty folder)`` if it is not complete.

    ``is_whole(final)`` says whether the folder is complete. It is created under a temporary name
    and renamed. ``refresh`` always creates it anew. ``on_wait`` is called once if another process
    is creating the same folder, which is then reused.

    MachineError: the cache cannot be written (permissions, disk full).
    """
    hint = ", or use another folder (set XDG_CACHE_HOME for the cache)"
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
    """Remove ``path`` and everything below it on the same file system; ignore a missing path.

    Without root, mmdebstrap creates files that belong to subordinate ids. These are removed inside
    a user namespace. Source: mmdebstrap(1), "unshare".
    """
    remove = ["rm", "-rf", "--one-file-system", "--", str(path)]
    # A process that was just killed may still write a file into the folder.
    for pause in (0.1, 0.1, 0.0):
        if run(remove).ok:
            return
        time.sleep(pause)
    run(["mmdebstrap", "--unshare-helper", *remove])
    run(remove)


@dataclass(frozen=True)
class ContentStore:
    """Files stored by sha256; every stored file is complete, even after a process was killed."""

    folder: Path

    def path(self, digest: str) -> Path:
        return self.folder / "sha256" / digest[:2] / digest

    def find(self, digest: str, size: int | None = None) -> Path | None:
        """Return the file if it exists and, if ``size`` is given, has that many bytes."""
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
        """Return the file; create it with ``make(part)`` if it is missing.

        If ``make`` raises, ``part`` is kept so that the next call can resume. ``name`` is for the
        error.

        MachineError: the store cannot be written (permissions, disk full).
        """
        final = self.path(digest)
        if self.find(digest, size):
            return final
        hint = "; the next run resumes here"
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
    """Hard-link a stored file to another name; copy it if the file system refuses the link."""
    try:
        target.hardlink_to(source)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
