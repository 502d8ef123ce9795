"""One thing that can be removed, and what became of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """Something that imgbuild made. ``size`` is in bytes, ``since`` in seconds since 1970, or 0.

    ``remove`` returns whether it is gone; somebody may have begun to use it. ``kept`` is why it
    must stay, if it must. ``image`` is the image of the matrix whose lock removing it needs.
    """

    kind: str
    name: str
    why: str
    remove: Callable[[], bool] = field(repr=False, compare=False)
    size: int = 0
    since: int = 0
    kept: str | None = None
    image: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what ``clean --json`` prints of it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "why": self.why,
            "size": self.size,
            "since": self.since or None,
            "kept": self.kept,
        }
