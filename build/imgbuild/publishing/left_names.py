"""Names that killed pushes left on the engine, for `imgbuild clean`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from imgbuild.cleaning.busy import worker_on
from imgbuild.cleaning.finding import Finding
from imgbuild.cleaning.kinds import Kind
from imgbuild.engine.client import Engine
from imgbuild.publishing.names import take_back


def find_left_names(engine: Engine, busy: dict[str, str], folder: Path) -> Iterator[Finding]:
    """Yield each name that is noted in ``folder``; ``busy`` are the processes at work."""
    for note in sorted(folder.glob("*.json")):
        image = note.stem
        worker = worker_on(image, busy)
        yield Finding(
            Kind.NAMES,
            _reference(note),
            f"of a push of {image} that was killed",
            _remover(engine, image, folder),
            since=int(note.stat().st_mtime),
            kept=f"process {worker} is at work on it" if worker else None,
            image=image,
        )


def _remover(engine: Engine, image: str, folder: Path) -> Callable[[], bool]:
    def remove() -> bool:
        take_back(engine, image, folder)
        return True

    return remove


def _reference(note: Path) -> str:
    """Return the name; that of the note if it cannot be read."""
    try:
        return str(json.loads(note.read_text(encoding="utf-8"))["reference"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(note)
