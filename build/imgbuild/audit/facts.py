"""What the audit knows and finds, as frozen values that print themselves as JSON."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from imgbuild.yaml_file import Location


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
        """Return the version in a library's name: ``10.1`` for ``cudart`` of this example."""
        start = f"lib{library}.so."
        found = (name.removeprefix(start) for name in self.libraries if name.startswith(start))
        return next(found, None)

    @property
    def file_tags(self) -> frozenset[Tag]:
        """The tags of its file name, which is what installers go by."""
        return tags_of(self.file)

    def as_json(self) -> dict[str, Any]:
        """Return its facts without the sha256, which is their key."""
        return {key: value for key, value in asdict(self).items() if key != "sha256"}

    @classmethod
    def from_json(cls, sha256: str, value: Any) -> "WheelFacts":  # noqa: ANN401 - whatever JSON holds
        """Return the facts that :meth:`as_json` wrote; ValueError if these are others."""
        names = {field.name for field in fields(cls)} - {"sha256"}
        if not isinstance(value, dict) or set(value) != names:
            raise ValueError("not the facts of a wheel")
        frozen: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in value.items()
        }
        return cls(sha256=sha256, **frozen)


@dataclass(frozen=True)
class SdistFacts:
    """A source distribution as the index offers it. ``size`` is in bytes, if the index tells."""

    sha256: str
    file: str
    size: int | None
    name: str
    version: str


@dataclass(frozen=True)
class Contradiction:
    """A pin and an artifact that do not agree.

    ``place`` is a location in matrix.yaml, or a file with what is meant in it.
    """

    kind: str
    subject: str
    place: Location | str
    evidence: str
    change: str


def tags_of(file: str) -> frozenset[Tag]:
    """Return the tags of a wheel's file name; none if it is no wheel's."""
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()
