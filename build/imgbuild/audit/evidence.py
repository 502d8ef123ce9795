"""What was read out of artifacts, by their sha256: ``images/evidence.json``."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from imgbuild.errors import InputError
from imgbuild.files import write_text

#: Raise it when the facts change their meaning: then everything is read anew.
SCHEMA = 1


@dataclass(frozen=True)
class WheelFacts:
    """What a TensorFlow wheel is, read out of the wheel. ``size`` is in bytes."""

    sha256: str
    file: str
    size: int
    name: str
    version: str
    tags: tuple[str, ...]
    libraries: tuple[str, ...]
    """The GPU libraries that it loads, such as ``libcudnn.so.7``; none for a CPU build."""
    loading: str
    """``needed`` at import, ``opened`` when first used, or ``none``."""
    cuda_build: bool | None
    """What ``build_info.py`` says it is."""
    capabilities: tuple[str, ...]
    """The compute capabilities that ``build_info.py`` lists, such as ``sm_70``; from 2.3 on."""
    compiler: str
    cxx11_abi: int
    glibc: str
    """The C library that its symbols ask for; the platform tag may promise less."""

    def version_of(self, library: str) -> str | None:
        """Return the version in a library's name: ``10.1`` for ``cudart`` of libcudart.so.10.1."""
        start = f"lib{library}.so."
        found = (name.removeprefix(start) for name in self.libraries if name.startswith(start))
        return next(found, None)

    @property
    def file_tags(self) -> frozenset[Tag]:
        """The tags of its file name, which installers use."""
        return tags_of(self.file)

    def as_json(self) -> dict[str, Any]:
        """Return its facts without the sha256, which is their key."""
        return {key: value for key, value in asdict(self).items() if key != "sha256"}

    @classmethod
    def from_json(cls, sha256: str, value: dict[str, Any]) -> "WheelFacts":
        """Return the facts that `as_json` wrote; ValueError for any others."""
        if set(value) != {field.name for field in fields(cls)} - {"sha256"}:
            raise ValueError("not the facts of a wheel")
        frozen: dict[str, Any] = {
            key: tuple(one) if isinstance(one, list) else one for key, one in value.items()
        }
        return cls(sha256=sha256, **frozen)


@dataclass(frozen=True)
class SdistFacts:
    """A source distribution as the index offers it. ``size`` is in bytes, if known."""

    sha256: str
    file: str
    size: int | None
    name: str
    version: str


def tags_of(file: str) -> frozenset[Tag]:
    """Return the tags of a wheel's file name; none for any other file."""
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()


@dataclass(frozen=True)
class Evidence:
    """The facts of artifacts, and the day (UTC, ISO 8601) on which one was last read anew."""

    date: str
    wheels: tuple[WheelFacts, ...] = ()
    sdists: tuple[SdistFacts, ...] = ()

    def wheel(self, sha256: str) -> WheelFacts | None:
        """Return the facts of the wheel with this content."""
        return next((facts for facts in self.wheels if facts.sha256 == sha256), None)

    def sdist(self, sha256: str) -> SdistFacts | None:
        """Return the facts of the source distribution with this content."""
        return next((facts for facts in self.sdists if facts.sha256 == sha256), None)

    def text(self) -> str:
        """Return the file that is committed: sorted, and the same for the same facts."""
        sdists = {
            facts.sha256: {key: value for key, value in vars(facts).items() if key != "sha256"}
            for facts in self.sdists
        }
        wheels = {facts.sha256: facts.as_json() for facts in self.wheels}
        document = {"schema": SCHEMA, "read": self.date, "wheels": wheels, "sdists": sdists}
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def load_evidence(path: Path) -> Evidence:
    """Return the committed evidence.

    Raises:
        InputError: it is missing, or was not written by ``imgbuild audit --write``.

    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _parsed(document)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing. Write it with `imgbuild audit --write`.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be used as evidence ({error}). Restore it from git, or write it anew "
            "with `imgbuild audit --write`."
        ) from error


def _parsed(document: dict[str, Any]) -> Evidence:
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']!r}, not {SCHEMA}")
    return Evidence(
        str(document["read"]),
        tuple(WheelFacts.from_json(key, one) for key, one in document["wheels"].items()),
        tuple(SdistFacts(sha256=key, **one) for key, one in document["sdists"].items()),
    )


def write_evidence(
    path: Path, new: Evidence, is_needed: Callable[[WheelFacts | SdistFacts], bool]
) -> bool:
    """Write the evidence; return whether the file changed.

    Facts in the file that were not read this time stay while an image of the matrix needs them. The
    same facts keep their date.
    """
    old = load_evidence(path) if path.exists() else Evidence(new.date)
    fresh = {*(one.file for one in new.wheels), *(one.file for one in new.sdists)}
    merged = Evidence(
        new.date,
        (*(one for one in old.wheels if one.file not in fresh and is_needed(one)), *new.wheels),
        (*(one for one in old.sdists if one.file not in fresh and is_needed(one)), *new.sdists),
    )
    if path.exists() and Evidence(old.date, merged.wheels, merged.sdists).text() == old.text():
        return False
    write_text(path, merged.text())
    return True
