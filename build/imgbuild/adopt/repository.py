"""Read the files of somebody's repository, which is hostile input."""

import codecs
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from imgbuild.core.errors import InputError

#: Limits of a repository: files, entries of folders, entries of one folder, levels, seconds.
MOST_FILES, MOST_ENTRIES, LARGEST_FOLDER, DEEPEST, WALK_SECONDS = 20_000, 200_000, 50_000, 20, 20.0
#: Files of one folder that are neither code nor text: a data set must not use up the limit.
MOST_OTHERS = 1000
#: Limits in bytes: a file, a notebook, all files, all notebooks.
LARGEST_FILE, LARGEST_NOTEBOOK = 1 << 20, 16 << 20
MOST_BYTES, MOST_NOTEBOOK_BYTES = 64 << 20, 64 << 20
#: Limits: notes, characters of a path.
_MOST_NOTES, _LONGEST_PATH = 100, 1000
_SUBMODULE = re.compile(r"^\s{0,20}path\s{0,9}=([^\n]{1,300})$", re.MULTILINE)
_SKIPPED_FOLDERS = {
    *(".git", ".hg", ".svn", ".tox", ".nox", ".eggs", ".ipynb_checkpoints", ".mypy_cache"),
    *(".pytest_cache", ".ruff_cache", "__pycache__", "__MACOSX", "node_modules", "site-packages"),
}
#: Files of an environment of Python; ``env`` is also a usual name for a simulator.
_ENVIRONMENT_FILES = {"pyvenv.cfg", "conda-meta"}
_TEXT_SUFFIXES = {
    *(".cfg", ".conf", ".gin", ".ini", ".ipynb", ".json", ".lock", ".md", ".py", ".rst", ".sh"),
    *(".toml", ".txt", ".yaml", ".yml"),
}
_TEXT_NAME = re.compile(r"(?i)readme.*|dockerfile.*|.*\.dockerfile|pipfile|makefile|\.gitlab-ci.*")
_COOKIE = re.compile(rb"[ \t\f]*#.{0,200}?coding[:=][ \t]*([-\w.]{1,40})")
#: Encodings that Python sources name. Others are refused: idna, for example, is slow.
_ENCODINGS = {
    *("ascii", "utf-8", "iso8859-1", "iso8859-2", "iso8859-5", "iso8859-15", "cp1250", "cp1251"),
    *("cp1252", "gb2312", "gbk", "gb18030", "big5", "euc_jp", "shift_jis", "cp932", "euc_kr"),
    *("cp949", "koi8-r"),
}


class Evidence(NamedTuple):
    """The place of a statement: a file, and its line or cell. Line 0 means the whole file."""

    path: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class Repository:
    """The regular files of a folder, within limits.

    - ``files``: sorted paths, with slashes, relative to the folder
    - ``notes``: the files that were skipped, with the reasons
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.notes: list[str] = []
        self._texts: dict[str, str] = {}
        self._left = {True: MOST_NOTEBOOK_BYTES, False: MOST_BYTES}
        self.files = tuple(sorted(_Walk(folder, self.note).files()))

    def read_text(self, path: str) -> str:
        """Return the text of a file with Unix line ends; if it is unreadable, add a note.

        The text is UTF-8, UTF-16 with a byte order mark, the encoding that a Python file names, or
        else Latin-1. The text of an unreadable file is empty. Each call reads a notebook again.
        """
        if path in self._texts:
            return self._texts[path]
        try:
            text = self._read(path)
        except (OSError, ValueError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            self.note(f"{path}: not read: {reason}")
            text = ""
        if not text or not path.endswith(".ipynb"):
            self._texts[path] = text
        return text

    def _read(self, path: str) -> str:
        is_notebook = path.endswith(".ipynb")
        limit = LARGEST_NOTEBOOK if is_notebook else LARGEST_FILE
        content = read_regular_file(self.folder, path, limit)
        if len(content) > self._left[is_notebook]:
            raise ValueError("the files before it reached the limit for all files")
        self._left[is_notebook] -= len(content)
        return decode_text(content, is_python=path.endswith(".py"))

    def match(self, *patterns: str) -> tuple[str, ...]:
        """Return the files whose name matches a pattern in any case, nearest to the root first."""
        lower = [pattern.lower() for pattern in patterns]
        matches = [path for path in self.files if _matches(path, lower)]
        return tuple(sorted(matches, key=lambda path: (path.count("/"), path)))

    def empty_submodules(self) -> tuple[str, ...]:
        """Return the folders of git submodules that were not cloned."""
        paths = _SUBMODULE.findall(self.read_text(".gitmodules"))
        folders = [path.strip().strip("/") for path in paths[:_MOST_NOTES]]
        return tuple(
            folder
            for folder in folders
            if not any(file.startswith(f"{folder}/") for file in self.files)
        )

    def note(self, text: str) -> None:
        """Add a note once, within the limit of notes."""
        if len(self.notes) < _MOST_NOTES and text not in self.notes:
            self.notes.append(text)
            if len(self.notes) == _MOST_NOTES:
                self.notes.append("more files were skipped")


def _matches(path: str, patterns: list[str]) -> bool:
    name = path.rpartition("/")[2].lower()
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def open_repository(folder: Path) -> Repository:
    """List the files of a folder.

    InputError: it is no folder, or cannot be read.
    """
    try:
        real = Path(os.path.realpath(folder))
        with os.scandir(real):
            pass
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "no valid path"
        raise InputError(f"{folder}: {reason}. Name the folder of a repository.") from None
    return Repository(real)


class _Walk:
    """A walk over the files of a folder, nearest to the root first."""

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self.folder, self.note = folder, note
        self.entries = 0
        self.ends = time.monotonic() + WALK_SECONDS

    def files(self) -> Iterator[str]:
        """Yield the paths of files without following links."""
        waiting, count = deque([("", 0)]), 0
        while waiting:
            folder, depth = waiting.popleft()
            texts, others, folders = self._read_folder(folder)
            if len(others) > MOST_OTHERS:
                skipped = len(others) - MOST_OTHERS
                self.note(f"{folder or '.'}: {skipped} files of data are not listed")
            for path in (*texts, *others[:MOST_OTHERS]):
                if count == MOST_FILES:
                    self.note(f"more than {MOST_FILES} files: the others are not read")
                    return
                count += 1
                yield path
            if depth < DEEPEST:
                waiting.extend((path, depth + 1) for path in folders)
            elif folders:
                self.note(f"{folder}: more than {DEEPEST} levels of folders")
            if self.entries >= MOST_ENTRIES or time.monotonic() > self.ends:
                self.note("too many files or too little time: some folders are not read")
                return

    def _read_folder(self, folder: str) -> tuple[list[str], list[str], list[str]]:
        """Return the sorted files that are code or text, other files, and folders, of a folder."""
        texts, others, folders = list[str](), list[str](), list[str]()
        try:
            with os.scandir(self.folder / folder) as entries:
                for number, entry in enumerate(entries):
                    if number >= LARGEST_FOLDER or self.entries >= MOST_ENTRIES:
                        self.note(f"{folder or '.'}: more than {number} entries")
                        break
                    self.entries += 1
                    if folder and entry.name in _ENVIRONMENT_FILES:
                        self.note(f"{folder}: skipped, an environment of Python")
                        return [], [], []
                    self._sort_entry(entry, folder, texts, others, folders)
        except OSError as error:
            self.note(f"{folder or '.'}: not read: {error.strerror}")
        return sorted(texts), sorted(others), sorted(folders)

    def _sort_entry(
        self,
        entry: "os.DirEntry[str]",
        folder: str,
        texts: list[str],
        others: list[str],
        folders: list[str],
    ) -> None:
        name = entry.name
        path = f"{folder}/{name}" if folder else name
        if not path.isprintable() or len(path) > _LONGEST_PATH:
            self.note(f"{ascii(path)[1:100]}: skipped because of its name")
        elif entry.is_symlink():
            self.note(f"{path}: skipped, a symbolic link")
        elif entry.is_dir(follow_symlinks=False):
            if name not in _SKIPPED_FOLDERS and not name.endswith((".egg-info", ".dist-info")):
                folders.append(path)
        elif not entry.is_file(follow_symlinks=False):
            self.note(f"{path}: skipped, not a regular file")
        elif Path(name).suffix.lower() in _TEXT_SUFFIXES or _TEXT_NAME.fullmatch(name):
            texts.append(path)
        else:
            others.append(path)


def read_regular_file(folder: Path, path: str, limit: int) -> bytes:
    """Return the content of a file below a folder, and follow no link below it.

    ValueError: it is no regular file, or larger than ``limit`` bytes. OSError: it cannot be read.
    """
    *parents, name = path.split("/")
    if not name or any(part in {"", ".", ".."} or "\0" in part for part in (*parents, name)):
        raise ValueError("not a path below the repository")
    flags = os.O_RDONLY | os.O_CLOEXEC
    here = os.open(folder, flags | os.O_DIRECTORY)
    try:
        for parent in parents:
            inner = os.open(parent, flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        # Opening a FIFO without O_NONBLOCK would block.
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        content = file.read(limit + 1) if status.st_size <= limit else b""
    if status.st_size > limit or len(content) > limit:
        raise ValueError(f"larger than {limit} bytes")
    return content


def decode_text(content: bytes, *, is_python: bool = False) -> str:
    """Return the text of a file with Unix line ends.

    ValueError: it has zero bytes, so that it is no text.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = content.decode("utf-16", "replace")
    elif b"\0" in content:
        raise ValueError("not text")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            encoding = _named_encoding(content) if is_python else "latin-1"
            text = content.decode(encoding, "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _named_encoding(content: bytes) -> str:
    """Return the encoding that the first two lines of a Python file name. Source: PEP 263."""
    for line in content.split(b"\n", 2)[:2]:
        if match := _COOKIE.match(line):
            try:
                name = codecs.lookup(match[1].decode("ascii")).name
            except (LookupError, ValueError):
                break
            return name if name in _ENCODINGS else "latin-1"
    return "latin-1"
