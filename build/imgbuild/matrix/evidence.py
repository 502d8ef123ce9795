"""evidence.json: the facts that ``imgbuild audit --write`` read out of wheels and sources."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pydantic import Field

from imgbuild.core import scalars
from imgbuild.core.errors import InputError
from imgbuild.core.files import parse_json
from imgbuild.core.yaml_file import Section

#: Raise it when the facts change their meaning: then everything is read anew.
SCHEMA = 2
WheelTag = Literal["cp36", "cp37", "cp38", "cp39", "cp310", "cp311", "cp312", "cp313", "cp314"]
#: The C library that old platform tags promise: PEP 513, PEP 571, PEP 599.
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}

#: A text that `Version` can read, because the file may say anything. Empty: the wheel has none.
_Numbers = Annotated[str, Field(pattern=r"^([0-9]{1,4}(\.[0-9]{1,4})*)?$")]
_Capability = Annotated[str, Field(pattern=r"^(sm|compute)_[0-9]{2,3}$")]


class Facts(Section):
    """The facts about a source distribution. ``size`` is in bytes."""

    sha256: str
    file: str
    size: int | None
    name: str
    version: str


class WheelFacts(Facts):
    """The facts about a TensorFlow wheel, read out of the wheel.

    ``pythons`` are the tags that its release has wheels for. ``libraries`` are the GPU libraries
    that it loads, such as ``libcudnn.so.7``: they are needed at import, or opened when first used.
    ``cuda`` is the release that they are of. ``capabilities`` are what its kernels are compiled
    for: ``sm_70`` is machine code, ``compute_70`` machine code and PTX. ``glibc`` is what its
    symbols ask for; the platform tag may promise less.
    """

    tags: tuple[str, ...]
    pythons: tuple[WheelTag, ...]
    libraries: tuple[str, ...]
    loading: str
    cuda_build: bool | None
    cuda: _Numbers
    capabilities: tuple[_Capability, ...]
    # It is a word of a Dockerfile.
    compiler: scalars.Compiler
    cxx11_abi: int
    glibc: _Numbers

    @property
    def native(self) -> tuple[str, ...]:
        """The compute capabilities that it has machine code for, such as ``7.0``."""
        return tuple(map(_format_capability, self.capabilities))

    @property
    def ptx(self) -> tuple[str, ...]:
        """The compute capabilities that it has PTX for."""
        ptx = [name for name in self.capabilities if name.startswith("compute_")]
        return tuple(map(_format_capability, ptx))

    @property
    def platform_glibc(self) -> str | None:
        """The oldest C library that its platform tags promise to run with."""
        names = [tag.platform.removesuffix("_x86_64") for tag in file_tags(self.file)]
        promises = [_LEGACY.get(name) or ".".join(name.split("_")[1:3]) for name in names]
        return min(filter(None, promises), key=Version, default=None)

    def version_of(self, library: str) -> str | None:
        """Return the version in a library's name: ``10.1`` for ``cudart`` of libcudart.so.10.1."""
        start = f"lib{library}.so."
        for name in self.libraries:
            if name.startswith(start):
                return name.removeprefix(start)
        return None


def _format_capability(capability: str) -> str:
    digits = capability.rpartition("_")[2]
    return f"{digits[:-1]}.{digits[-1]}"


def file_tags(file: str) -> frozenset[Tag]:
    """Return the tags in a wheel's file name, which installers use; none of another file."""
    try:
        return parse_wheel_filename(file)[3]
    except ValueError:  # also of a version with thousands of digits
        return frozenset()


@dataclass(frozen=True)
class Evidence:
    """The facts by sha256."""

    facts: Mapping[str, Facts] = field(default_factory=dict)

    def wheel(self, distribution: str, version: str, python: str) -> WheelFacts | None:
        """Return the facts of a release's wheel for a Python such as ``cp36``."""
        return self._wheels[canonicalize_name(distribution), version].get(python)

    def pythons(self, distribution: str, version: str) -> tuple[str, ...]:
        """Return the tags that a release has wheels for; none if none of its wheels was read."""
        wheels = self._wheels[canonicalize_name(distribution), version]
        return next((wheel.pythons for wheel in wheels.values()), ())

    @cached_property
    def _wheels(self) -> Mapping[tuple[str, str], dict[str, WheelFacts]]:
        wheels = defaultdict[tuple[str, str], dict[str, WheelFacts]](dict)
        for facts in self.facts.values():
            if isinstance(facts, WheelFacts):
                release = wheels[canonicalize_name(facts.name), facts.version]
                for tag in file_tags(facts.file):
                    release[tag.interpreter] = facts
        return wheels


def read_evidence(path: Path) -> Evidence:
    """Return what is in the file, nothing if there is none.

    InputError: it is not what ``audit --write`` wrote.
    """
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(document["schema"])  # noqa: TRY301
        facts: dict[str, Facts] = {}
        for section, kind in (("wheels", WheelFacts), ("sdists", Facts)):
            for digest, values in document[section].items():
                facts[digest] = kind(sha256=digest, **values)
    except (FileNotFoundError, NotADirectoryError):
        return Evidence()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "not what `imgbuild audit --write` writes"
        raise InputError(
            f"{path} cannot be used as evidence: {reason}. Restore it from git; or remove it, and "
            "`imgbuild audit --write` reads the wheels again."
        ) from error
    return Evidence(facts)
