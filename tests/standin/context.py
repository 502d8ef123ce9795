"""What every stand-in is made from, and where it is kept once it is made."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imgbuild.core.files import ensure_folder, sha256
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.core.user_folders import cache_dir
from imgbuild.matrix.model import Matrix

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Context:
    """One checkout's matrix, this machine's settings, and the engine that helps to make things."""

    project: Project
    matrix: Matrix
    settings: Settings
    host: str | None
    log: Callable[[str], None] = print

    @property
    def cache(self) -> Path:
        return cache_dir() / "standin"

    def stored(
        self, name: str, made_from: object, sources: tuple[str, ...], make: Callable[[Path], None]
    ) -> Path:
        """Return the folder ``name`` of the cache, made by ``make(folder)`` if it is not there.

        Others are made of another ``made_from``, which is JSON, and other files ``sources``.
        """
        parts = [made_from, {source: _digest(HERE / source) for source in sources}]
        key = sha256(json.dumps(parts, sort_keys=True).encode())[:16]

        def announced(folder: Path) -> None:
            self.log(f"making the stand-in {name}")
            make(folder)

        return ensure_folder(self.cache / f"{name}-{key}", announced, Path.is_dir)


def _digest(path: Path) -> str:
    return sha256(path.relative_to(HERE).as_posix().encode() + b"\0" + path.read_bytes())
