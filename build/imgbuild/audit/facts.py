"""The artifacts that images are made of, and what was read out of them: images/evidence.json."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from imgbuild.dockerfile.lockfile import Lock, read_lock
from imgbuild.errors import InputError
from imgbuild.files import write_text
from imgbuild.matrix.images import Image

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
        return _tags_of(self.file)


@dataclass(frozen=True)
class SdistFacts:
    """A source distribution as the index offers it. ``size`` is in bytes, if known."""

    sha256: str
    file: str
    size: int | None
    name: str
    version: str


Facts = WheelFacts | SdistFacts


def facts_json(facts: Facts) -> dict[str, Any]:
    """Return the facts without the sha256, which is their key."""
    return {key: value for key, value in asdict(facts).items() if key != "sha256"}


def _tags_of(file: str) -> frozenset[Tag]:
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()


@dataclass(frozen=True)
class Evidence:
    """The facts of artifacts, and the day (UTC, ISO 8601) on which one was last read anew."""

    date: str
    artifacts: tuple[Facts, ...] = ()

    def find(self, sha256: str) -> Facts | None:
        """Return the facts of the artifact with this content."""
        return next((one for one in self.artifacts if one.sha256 == sha256), None)

    def text(self) -> str:
        """Return the file that is committed: sorted, and the same for the same facts."""
        kinds = {"wheels": WheelFacts, "sdists": SdistFacts}
        document = {
            name: {one.sha256: facts_json(one) for one in self.artifacts if isinstance(one, kind)}
            for name, kind in kinds.items()
        }
        head = {"schema": SCHEMA, "read": self.date}
        return json.dumps(head | document, indent=1, sort_keys=True) + "\n"


def load_evidence(path: Path) -> Evidence:
    """Return the committed evidence.

    Raises:
        InputError: it is missing, or was not written by ``imgbuild audit --write``.

    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}, not {SCHEMA}")  # noqa: TRY301
        wheels = [WheelFacts(sha256=one, **_frozen(v)) for one, v in document["wheels"].items()]
        sdists = [SdistFacts(sha256=one, **v) for one, v in document["sdists"].items()]
        return Evidence(str(document["read"]), (*wheels, *sdists))
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing. Write it with `imgbuild audit --write`.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be used as evidence ({error}). Restore it from git, or write it anew "
            "with `imgbuild audit --write`."
        ) from error


def _frozen(values: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}


def write_evidence(path: Path, new: Evidence, is_needed: Callable[[Facts], bool]) -> bool:
    """Write the evidence; return whether the file changed.

    Facts in the file that were not read this time stay while an image of the matrix needs them. The
    same facts keep their date.
    """
    old = load_evidence(path) if path.exists() else Evidence("")
    fresh = {one.file for one in new.artifacts}
    kept = [one for one in old.artifacts if one.file not in fresh and is_needed(one)]
    merged = Evidence(new.date, (*kept, *new.artifacts))
    if Evidence(old.date, merged.artifacts).text() == old.text():
        return False
    write_text(path, merged.text())
    return True


@dataclass(frozen=True)
class WheelNeed:
    """A TensorFlow wheel: distribution, version, Python tag, and the images it goes into."""

    distribution: str
    version: str
    python_tag: str
    images: tuple[Image, ...]

    @property
    def subject(self) -> str:
        """Its name in reports."""
        return f"{self.distribution} {self.version}"

    def fits(self, file: str) -> bool:
        """Return whether a file is this version's wheel for this Python on Linux x86-64."""
        start = f"{canonicalize_name(self.distribution).replace('-', '_')}-{self.version}-"
        return file.startswith(start) and any(
            tag.interpreter == self.python_tag
            and tag.platform.endswith("_x86_64")
            and "linux" in tag.platform
            for tag in _tags_of(file)
        )


@dataclass(frozen=True)
class SdistNeed:
    """A Horovod source distribution."""

    version: str
    sha256: str
    distribution: str = "horovod"

    @property
    def subject(self) -> str:
        """Its name in reports."""
        return f"{self.distribution} {self.version}"

    @property
    def file(self) -> str:
        """Its file name in the index."""
        return f"{self.distribution}-{self.version}.tar.gz"


@dataclass(frozen=True)
class Pins:
    """What images are made of: wheels, source distributions, and their locks by file name."""

    wheels: tuple[WheelNeed, ...]
    sdists: tuple[SdistNeed, ...]
    locks: dict[str, Lock]

    def need(self, facts: Facts) -> bool:
        """Return whether an image needs the artifact."""
        if isinstance(facts, SdistFacts):
            return any(one.sha256 == facts.sha256 for one in self.sdists)
        return any(one.fits(facts.file) for one in self.wheels)


def pins_of(images: Iterable[Image], locks: Path) -> Pins:
    """Return the pins of ``images``, each once; ``locks`` is the folder of the locks that exist.

    Raises:
        InputError: a file there is no lock.

    """
    groups: dict[tuple[str, str, str], list[Image]] = {}
    sdists: dict[SdistNeed, None] = {}
    names: set[str] = set()
    for image in images:
        key = (image.distribution, image.tensorflow, image.python.wheel_tag)
        groups.setdefault(key, []).append(image)
        sdists[SdistNeed(image.version_of("horovod"), image.horovod.sha256)] = None
        names |= {*image.lock_names}
    return Pins(
        tuple(WheelNeed(*key, tuple(group)) for key, group in groups.items()),
        tuple(sdists),
        {name: read_lock(locks / name) for name in sorted(names) if (locks / name).exists()},
    )
