"""Read the dates and authors of a repository from git's objects alone.

The repository's own configuration can name programs that git runs, for example ``core.fsmonitor``
and ``gpg.program``. So git gets a new folder without configuration, hooks and references. It reads
only the objects of the repository.
"""

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from imgbuild.adopt.repository import LARGEST_FILE, decode_text, read_regular_file
from imgbuild.core.errors import InputError
from imgbuild.core.files import work_folder
from imgbuild.core.process import FLOODED, NOT_FOUND, TIMED_OUT, Finished, run

#: Limits: seconds for all commands, and for one; address space of git in KiB.
HISTORY_SECONDS, COMMAND_SECONDS = 40.0, 15.0
_MEMORY_KIB = 4 << 20
#: Limits: commits that are searched for one that no bot wrote, files whose authors are checked,
#: files of packs, folders above the repository, links from one reference to the next.
_MOST_COMMITS, _MOST_PATHS, _MOST_PACKS, _MOST_PARENTS, _MOST_LINKS = 300, 50, 20_000, 6, 5
#: Limits of files below .git, in bytes.
_LARGEST_REFERENCE, _LARGEST_LIST = 4096, 16 << 20
_OBJECT_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(r"refs(?:/(?!\.)[A-Za-z0-9._@+#-]+(?<!\.lock)){1,20}")
#: Settings of git: only plain objects are read, and packs in small parts.
_SETTINGS = (
    *("core.commitGraph=false", "core.multiPackIndex=false"),
    *("core.packedGitWindowSize=16m", "core.packedGitLimit=256m"),
)
_CODE = ("*.py", "*.ipynb")
_BOT_NAME = re.compile(
    r"(?i)\[bot\]|\b(?:dependabot|renovate|pyup|snyk|greenkeeper|imgbot|allcontributors|mergify"
    r"|whitesource|mend|restyled|deepsource|codefactor|lgtm|pre-commit-ci|github-actions)\b"
    r"|[-_ ]bot$|^bot[-_ ]"
)
_BOT_ADDRESS = re.compile(r"(?i)\[bot\]@|@dependabot\.com$|^(?:bot|snyk-bot)@|@pyup\.io$")
#: The subject of a bot's change that a person has merged under the person's name.
_BOT_SUBJECT = re.compile(
    r"(?i)(?:[\w()/-]{1,40}: )?(?:bump|update) \S{1,100} (?:requirement )?from \S{1,60} to \S{1,60}"
    r"|(?:fix: )?\S{1,100} to reduce vulnerabilities"
)


@dataclass(frozen=True)
class History:
    """The facts that git's history has about the code.

    - ``code_date``: the day on which a person last committed Python files or notebooks
    - ``bot_files``: for each file that a bot changed last, the newest text that no bot wrote
    - ``note``: the reason why facts are missing, or empty text
    """

    code_date: date | None = None
    bot_files: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


class _Commit(NamedTuple):
    name: str
    time: int
    author: str
    address: str
    subject: str

    @property
    def is_by_bot(self) -> bool:
        return bool(
            _BOT_NAME.search(self.author[:200])
            or _BOT_ADDRESS.search(self.address[:200])
            or _BOT_SUBJECT.match(self.subject[:400])
        )


def read_history(folder: Path, paths: Sequence[str]) -> History:
    """Read the date of the code, and which of the files ``paths`` a bot changed last."""
    try:
        place, prefix = _find_git_folder(folder)
        head = _resolve_head(place)
        _check_objects(place)
        shallow = _read_shallow(place)
        with work_folder("history") as work:
            return _read(_Git(work.absolute(), place, head, shallow, prefix), folder, paths)
    except InputError as error:
        return History(note=str(error))
    except OSError as error:
        return History(note=f"the history was not read: {error.strerror}")


def _read(git: "_Git", folder: Path, paths: Sequence[str]) -> History:
    notes = []
    day = None
    try:
        commit = git.find_human_commit(_CODE)
        if commit:
            day = _day(commit.time)
            if commit.name in git.shallow:
                notes.append("shallow history: the code may be older than its last commit")
        else:
            notes.append("the history has no commit of Python code")
        if commit and day is None:
            notes.append("the date of the last commit is not plausible")
        bot_files = dict(_read_bot_files(git, folder, paths))
    except InputError as error:
        return History(day, {}, str(error))
    return History(day, bot_files, "; ".join(notes))


def _day(seconds: int) -> date | None:
    """Return the day of a commit; None if it is before git existed, or in the future."""
    try:
        day = datetime.fromtimestamp(seconds, UTC).date()
    except (OverflowError, ValueError, OSError):
        return None
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    return day if date(2005, 4, 1) <= day <= tomorrow else None


def _read_bot_files(git: "_Git", folder: Path, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each file that a bot changed last, and its newest text that no bot wrote."""
    for path in paths[:_MOST_PATHS]:
        newest = next(git.log([path], 1), None)
        if newest is None or not newest.is_by_bot:
            continue
        if git.read_file(git.head, path) != _read_now(folder, path):
            continue  # somebody has changed it since the last commit
        commit = git.find_human_commit([path])
        text = git.read_file(commit.name, path) if commit else None
        if text is not None:
            yield path, text


def _read_now(folder: Path, path: str) -> str | None:
    try:
        return decode_text(read_regular_file(folder, path, LARGEST_FILE))
    except (OSError, ValueError):
        return None


def _find_git_folder(folder: Path) -> tuple[Path, str]:
    """Return the folder ``.git`` here or above, and the path of this folder in that repository.

    InputError: no folder has one, or it is a file or a link.
    """
    parts: list[str] = []
    here = Path(os.path.realpath(folder))
    for _ in range(_MOST_PARENTS):
        place = here / ".git"
        with suppress(FileNotFoundError):
            mode = place.lstat().st_mode
            if stat.S_ISDIR(mode):
                return place, "".join(f"{part}/" for part in reversed(parts))
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a file, as in a submodule"
            raise InputError(f"the history was not read: .git is {kind}")
        parts.append(here.name)
        here = here.parent
    raise InputError("no history: there is no .git")


def _resolve_head(place: Path) -> str:
    """Return the object name of HEAD. git itself would read the configuration first."""
    name = "HEAD"
    for _ in range(_MOST_LINKS):
        text = _read_reference(place, name)
        if _OBJECT_NAME.fullmatch(text):
            return text
        name = text.removeprefix("ref:").strip()
        if not text.startswith("ref:") or not _is_reference(name):
            break
    raise InputError("the history was not read: .git/HEAD is not valid")


def _is_reference(name: str) -> bool:
    return bool(len(name) < 500 and _REFERENCE.fullmatch(name)) and ".." not in name


def _read_git_file(place: Path, name: str, limit: int) -> bytes | None:
    """Return the content of a file below ``.git``; None if it does not exist."""
    try:
        return read_regular_file(place, name, limit)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"the history was not read: .git/{name}: {error}") from None


def _read_reference(place: Path, name: str) -> str:
    """Return the text of a reference, from its file or from the list of packed references."""
    content = _read_git_file(place, name, _LARGEST_REFERENCE)
    if content is not None:
        return content.decode("ascii", "replace").strip()
    wanted = name.encode()
    packed = _read_git_file(place, "packed-refs", _LARGEST_LIST) or b""
    for line in packed.split(b"\n"):
        value, _, reference = line.partition(b" ")
        if reference.strip() == wanted:
            return value.decode("ascii", "replace")
    raise InputError("the history has no commit")


def _check_objects(place: Path) -> None:
    """Refuse objects that lead to other folders.

    InputError: a folder of objects is a link, or the objects have alternates.
    """
    reason = "the history was not read: its objects are in another folder"
    objects = place / "objects"
    for name in ("", "info", "pack"):
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR((objects / name).lstat().st_mode):
                raise InputError(reason)
    for name in ("alternates", "http-alternates"):
        with suppress(FileNotFoundError):
            (objects / "info" / name).lstat()
            raise InputError(reason)
    with suppress(FileNotFoundError), os.scandir(objects / "pack") as entries:
        for number, entry in enumerate(entries):
            if number > _MOST_PACKS or not entry.is_file(follow_symlinks=False):
                raise InputError("the history was not read: its packs are not plain files")


def _read_shallow(place: Path) -> frozenset[str]:
    """Return the commits of a shallow clone that lack their parents."""
    content = _read_git_file(place, "shallow", _LARGEST_LIST) or b""
    names = content.decode("ascii", "replace").split()
    if not all(map(_OBJECT_NAME.fullmatch, names)):
        raise InputError("the history was not read: shallow is not valid")
    return frozenset(names)


class _Git:
    """Run git with the objects of a repository, and with nothing else from the repository."""

    def __init__(
        self, work: Path, place: Path, head: str, shallow: frozenset[str], prefix: str
    ) -> None:
        self.head, self.shallow, self.prefix, self.work = head, shallow, prefix, work
        self.ends = time.monotonic() + HISTORY_SECONDS
        git_folder = work / "git"
        for name in ("objects", "refs"):
            (git_folder / name).mkdir(parents=True)
        (git_folder / "HEAD").write_text(f"{head}\n")
        if shallow:
            (git_folder / "shallow").write_text("".join(f"{name}\n" for name in sorted(shallow)))
        if len(head) == 64:
            config = "[core]\nrepositoryformatversion = 1\nbare = true\n"
            (git_folder / "config").write_text(f"{config}[extensions]\nobjectFormat = sha256\n")
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(work),
            "XDG_CONFIG_HOME": str(work),
            "LC_ALL": "C",
            "GIT_DIR": str(git_folder),
            "GIT_OBJECT_DIRECTORY": str(place / "objects"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_PAGER": "cat",
        }

    def run(self, *words: str) -> Finished:
        """Run a command of git. InputError: there is no git, or it takes too long."""
        seconds = min(COMMAND_SECONDS, self.ends - time.monotonic())
        if seconds <= 0:
            raise InputError("the history was not read to its end: it took too long")
        options = []
        for setting in _SETTINGS:
            options += ["-c", setting]
        limit = f'ulimit -v {_MEMORY_KIB} && ulimit -c 0 && exec "$@"'
        command = ["sh", "-c", limit, "sh", "git", "--no-pager", *options, *words]
        finished = run(command, timeout=seconds, env=self.environment, cwd=self.work)
        # The shell's code for a program that it does not find.
        if finished.code == NOT_FOUND:
            raise InputError("the history was not read: git is not installed")
        if finished.code in {TIMED_OUT, FLOODED}:
            raise InputError("the history was not read to its end: it is too large")
        return finished

    def log(self, paths: Sequence[str], count: int) -> Iterator[_Commit]:
        """Yield the newest commits that changed files.

        InputError: objects are missing or damaged.
        """
        scope = [self._pathspec(path) for path in paths]
        form = "--format=%H%x00%at%x00%an%x00%ae%x00%<(400,trunc)%s"
        options = ("--no-renames", "--no-mailmap", "--no-show-signature", "--encoding=UTF-8")
        finished = self.run("log", f"-{count}", form, *options, self.head, "--", *scope)
        if not finished.ok:
            raise InputError("the history was not read: objects are missing or damaged")
        for line in finished.output.split("\n"):
            parts = line.split("\0")
            if len(parts) == 5 and re.fullmatch(r"-?\d{1,18}", parts[1]):
                name, seconds, author, address, subject = parts
                yield _Commit(name, int(seconds), author, address, subject.strip())

    def find_human_commit(self, paths: Sequence[str]) -> _Commit | None:
        """Return the newest commit that changed files and that no bot wrote."""
        # A person nearly always wrote the newest commit, and a longer list takes git longer.
        for count in (1, _MOST_COMMITS):
            for commit in self.log(paths, count):
                if not commit.is_by_bot:
                    return commit
        return None

    def _pathspec(self, path: str) -> str:
        if path.startswith("*"):
            return f":(glob){self.prefix}**/{path}" if self.prefix else f":(glob)**/{path}"
        return f":(literal){self.prefix}{path}"

    def read_file(self, commit: str, path: str) -> str | None:
        """Return the text of a file in a commit; None if it has none, or is too large."""
        name = f"{commit}:{self.prefix}{path}"
        size = self.run("cat-file", "-s", name).output.strip()
        if not size.isdigit() or int(size) > LARGEST_FILE:
            return None
        finished = self.run("cat-file", "blob", name)
        if not finished.ok:
            return None
        with suppress(ValueError):
            return decode_text(finished.output.encode())
        return None
