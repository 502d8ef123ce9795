"""What every stand-in is made from, and where it is kept once it is made."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imgbuild.files import stored_folder
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project, cache_dir
from imgbuild.settings import Settings

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Context:
    """One checkout's matrix, this machine's settings, and the engine that helps to make things."""

    project: Project
    matrix: Matrix
    settings: Settings
    host: str | None
    say: Callable[[str], None] = print

    @property
    def cache(self) -> Path:
        """Where stand-ins are kept, by what they are made from."""
        return cache_dir() / "standin"

    def stored(
        self, name: str, made_from: object, sources: tuple[str, ...], make: Callable[[Path], None]
    ) -> Path:
        """Return the folder ``name`` of the cache, made by ``make(folder)`` if it is not there.

        It is made again when ``made_from`` (anything JSON holds) or one of the files ``sources``
        of this package is another one.
        """
        parts = [made_from, {source: _digest(HERE / source) for source in sources}]
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

        def announced(folder: Path) -> None:
            self.say(f"making the stand-in {name}")
            make(folder)

        return stored_folder(self.cache / f"{name}-{key}", announced, Path.is_dir)


def _digest(path: Path) -> str:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    whole = hashlib.sha256()
    for file in files:
        if "__pycache__" not in file.parts:
            whole.update(file.relative_to(HERE).as_posix().encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
