"""The cache on disk, folder by folder: all of it can be made or fetched again."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from imgbuild.cleaning.busy import held_locks
from imgbuild.cleaning.finding import Finding
from imgbuild.cleaning.kinds import Kind
from imgbuild.files import remove_tree

#: What the folders of the cache hold, and after a semicolon what it costs that they go, where that
#: is more or less than a download. A folder that is not named here is shown all the same.
HELD: dict[str, str] = {
    "audit": "what an earlier version of imgbuild audit read",
    "base": "base images made by mmdebstrap",
    "contexts": "build contexts: links to downloads, keyrings",
    "cpython": "interpreters made from prefixes of this machine",
    "downloads": "files by their sha256",
    "rendered": "which Dockerfiles were found to be the rendered ones; seen again in seconds",
    "sizes": "sizes of images and layers; measured again when asked for, minutes an image",
    "standin": "stand-ins for tests",
    "uv": "the uv program",
    "wheels": "compiled Horovod wheels; compiled again when needed, minutes each",
}
#: A folder that is being removed is first renamed to this and its own name.
_GOING = ".removed-"


def find_caches(
    cache: Path, busy: dict[str, str], now: Callable[[], dict[str, str]] = dict
) -> Iterator[Finding]:
    """Yield each folder of the cache; while a build runs here, all of them are kept.

    ``busy`` is what runs, and ``now`` tells it again when a folder is removed.
    """
    for path in sorted(cache.iterdir()) if cache.is_dir() else ():
        if path.name.startswith("."):
            continue
        held = HELD.get(path.name, "a cache")
        why = held if ";" in held else f"{held}; made or fetched again when needed"
        yield Finding(
            *(f"{Kind.CACHE}/{path.name}", str(path), why, _remover(path, now)),
            *(disk_size(path), int(path.stat().st_mtime), _user(path, busy)),
        )


def disk_size(path: Path) -> int:
    """Return the bytes that ``path`` and all below it take; a file with two names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, _, files in os.walk(path) if path.is_dir() else [(path.parent, (), (path.name,))]:
        for name in files:
            try:
                status = (Path(folder) / name).lstat()
            except OSError:  # it went meanwhile
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total


def removed(path: Path) -> bool:
    """Remove a file or folder; nobody ever sees half of it. Return whether it is gone."""
    going = path.with_name(f"{_GOING}{os.getpid()}-{path.name}")
    try:
        path.rename(going)
    except FileNotFoundError:
        return True
    remove_tree(going)
    return not going.exists()


def half_removed(folder: Path) -> Iterator[Path]:
    """Yield what killed cleanings had renamed and not yet removed."""
    yield from folder.glob(f"{_GOING}*")


def _user(path: Path, busy: dict[str, str]) -> str | None:
    if busy:
        return f"process {next(iter(busy.values()))} is building or testing"
    held = next(held_locks(path), None)
    return f"{held} is held" if held else None


def _remover(path: Path, now: Callable[[], dict[str, str]]) -> Callable[[], bool]:
    return lambda: not now() and next(held_locks(path), None) is None and removed(path)
