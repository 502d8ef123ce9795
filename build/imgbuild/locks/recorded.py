"""Which downloads of an image have a recorded sha256, and which are still unlocked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.errors import InputError
from imgbuild.locks.conda import CondaEntry, conda_lock_name, read_conda_lock
from imgbuild.matrix.images import Image


@dataclass(frozen=True)
class RecordedDownload:
    """One download of a lock; ``sha256`` is None until a lock has recorded it."""

    url: str
    sha256: str | None

    @property
    def name(self) -> str:
        """Its file name."""
        return self.url.rsplit("/", 1)[1]

    def as_json(self) -> dict[str, Any]:
        """Return what ``show --json`` prints."""
        return {"url": self.url, "sha256": self.sha256, "locked": self.sha256 is not None}


def conda_packages(image: Image, locks: Path) -> tuple[RecordedDownload, ...]:
    """Return the conda packages of the image's interpreter; those in no lock are unlocked."""
    python = image.python
    if python.origin != "conda":
        return ()
    entries = _entries(locks / conda_lock_name(image.version_of("python")))
    found = ((url, entries.get(url)) for url in python.packages)
    return tuple(RecordedDownload(url, entry.sha256 if entry else None) for url, entry in found)


def _entries(path: Path) -> Mapping[str, CondaEntry]:
    """Return the lock's entries: none where there is no lock that can be read."""
    try:
        return read_conda_lock(path)
    except InputError:
        return {}
