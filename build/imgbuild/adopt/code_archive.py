"""Write the files of a repository as a tar archive, within limits and without following links."""

import io
import os
import posixpath
import stat
import tarfile
import time
from contextlib import suppress
from itertools import islice
from typing import IO, Self

from imgbuild.core.text import size_text

#: Limits of a copy: files and folders, depth, bytes of a file and of all, seconds.
ENTRIES, DEPTH, FILE_BYTES, ALL_BYTES, SECONDS = 50_000, 20, 1 << 30, 4 << 30, 300
#: Folders that no program reads, and that can be large.
LEFT_OUT = frozenset(
    (".git", ".hg", ".svn", ".tox", ".mypy_cache", ".pytest_cache", "node_modules", "__pycache__")
)
#: Notes about files that were not copied.
_NOTES = 20
_TOO_MANY = "there are more files than are copied"


class CodeArchive:
    """A tar stream of a repository's files below ``target``, which everybody may write to.

    ``names`` are the paths in it, relative to the repository. ``notes`` name files that are left
    out.
    """

    def __init__(self, stream: IO[bytes], target: str) -> None:
        self.names: set[str] = set()
        self.notes: list[str] = []
        self._target = target
        self._archive = tarfile.open(  # noqa: SIM115 - `__exit__` closes it
            fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT
        )
        self._bytes = 0
        self._end = time.monotonic() + SECONDS

    def add_folder(self, path: str) -> None:
        """Add an empty folder by its absolute path."""
        member = tarfile.TarInfo(path.lstrip("/"))
        member.type, member.mode = tarfile.DIRTYPE, 0o777
        self._archive.addfile(member)

    def add_text(self, path: str, text: str) -> None:
        """Add a file by its absolute path."""
        content = text.encode("utf-8", "surrogateescape")
        member = tarfile.TarInfo(path.lstrip("/"))
        member.size, member.mode = len(content), 0o644
        self._archive.addfile(member, io.BytesIO(content))

    def add_link(self, path: str, goal: str) -> None:
        """Add a symbolic link by its absolute path."""
        member = tarfile.TarInfo(path.lstrip("/"))
        member.type, member.linkname = tarfile.SYMTYPE, goal
        self._archive.addfile(member)

    def add_repository(self, folder: str) -> None:
        """Add the files of a folder.

        OSError: the folder cannot be read, or the stream cannot be written.
        """
        self.add_folder(self._target)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._add_entries(descriptor, "", 0)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the end of the archive. After an error, ignore further errors of the stream."""
        with suppress(*((OSError, ValueError) if kind else ())):
            self._archive.close()

    def _add_entries(self, descriptor: int, path: str, depth: int) -> None:
        """Add the entries of an open folder, so that no link on the way can lead elsewhere."""
        with os.scandir(descriptor) as entries:
            names = sorted(entry.name for entry in islice(entries, ENTRIES))
        if "pyvenv.cfg" in names and depth:
            self._note(f"{path} is a virtual environment")
            return
        for name in names:
            if len(self.names) >= ENTRIES or time.monotonic() > self._end:
                if _TOO_MANY not in self.notes:
                    self.notes.append(_TOO_MANY)
                return
            if name not in LEFT_OUT:
                own = f"{path}/{name}" if path else name
                try:
                    self._add_entry(descriptor, name, own, depth)
                except BrokenPipeError:
                    raise
                except OSError as error:
                    self._note(f"{own}: {error.strerror}")

    def _add_entry(self, parent: int, name: str, path: str, depth: int) -> None:
        kind = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(kind):
            self._add_own_link(os.readlink(name, dir_fd=parent), path)
        elif stat.S_ISDIR(kind):
            if depth >= DEPTH:
                self._note(f"{path} is nested too deeply")
                return
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            descriptor = os.open(name, flags, dir_fd=parent)
            try:
                self.names.add(path)
                self.add_folder(f"{self._target}/{path}")
                self._add_entries(descriptor, path, depth + 1)
            finally:
                os.close(descriptor)
        elif stat.S_ISREG(kind):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(name, flags, dir_fd=parent), "rb") as file:
                self._add_file(file, path)
        else:
            self._note(f"{path} is no file")

    def _add_own_link(self, goal: str, path: str) -> None:
        """Add a link if it stays in the repository."""
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), goal))
        if goal.startswith("/") or place.startswith(".."):
            self._note(f"{path} is a link out of the repository")
            return
        self.names.add(path)
        self.add_link(f"{self._target}/{path}", goal)

    def _add_file(self, file: IO[bytes], path: str) -> None:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return
        if status.st_size > FILE_BYTES or self._bytes + status.st_size > ALL_BYTES:
            self._note(f"{path} is not copied: {size_text(status.st_size)}")
            return
        self._bytes += status.st_size
        member = tarfile.TarInfo(f"{self._target}/{path}".lstrip("/"))
        member.size, member.mtime = status.st_size, max(0, int(status.st_mtime))
        member.mode = 0o666 | (status.st_mode & 0o111)
        self.names.add(path)
        self._archive.addfile(member, _Exactly(file, status.st_size))

    def _note(self, text: str) -> None:
        if len(self.notes) < _NOTES:
            self.notes.append(text)


class _Exactly(io.RawIOBase):
    """A file's first bytes, filled up with zeros if it has become shorter meanwhile."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = -1) -> bytes:
        wanted = min(size, self._left) if size >= 0 else self._left
        data = b""
        with suppress(OSError):
            data = self._file.read(wanted)
        self._left -= wanted
        return data.ljust(wanted, b"\0")
