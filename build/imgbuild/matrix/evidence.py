"""Facts in ``images/evidence.json``, which ``imgbuild audit --write`` reads from packages."""

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

#: Increment it if a fact changes its meaning. Files with another number are refused.
SCHEMA = 2
#: The architectures of images, as Docker names them, and as wheels and ``uname`` do.
Architecture = Literal["amd64", "arm64"]
MACHINES: Mapping[Architecture, str] = {"amd64": "x86_64", "arm64": "aarch64"}
WheelTag = Literal["cp36", "cp37", "cp38", "cp39", "cp310", "cp311", "cp312", "cp313", "cp314"]
#: The oldest glibc that each legacy platform tag supports. Sources: PEP 513, PEP 571, PEP 599.
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
#: The first TensorFlow with PTX that only Hopper can use, and the first without.
_HOPPER_ONLY = (Version("2.16"), Version("2.21"))

#: A version that `Version` can parse, because the file may contain anything. Empty if unknown.
_Numbers = Annotated[str, Field(pattern=r"^([0-9]{1,4}(\.[0-9]{1,4})*)?$")]
_Capability = Annotated[str, Field(pattern=r"^(sm|compute)_[0-9]{2,3}$")]


class Facts(Section):
    """Facts about a source distribution. ``size`` is in bytes."""

    sha256: str
    file: str
    size: int | None
    name: str
    version: str


class WheelFacts(Facts):
    """Facts that were read from a TensorFlow wheel.

    - ``pythons``: the tags of all Pythons that the release has wheels for.
    - ``libraries``: the GPU libraries that it loads, for example ``libcudnn.so.7``.
    - ``loading``: whether it loads them at import or at first use.
    - ``cuda``: the CUDA release of these libraries.
    - ``capabilities``: the targets of its kernels. ``sm_70`` means machine code, ``compute_70``
      machine code and PTX.
    - ``glibc``: the version that its symbols require. The platform tag may name an older one.
    """

    tags: tuple[str, ...]
    pythons: tuple[WheelTag, ...]
    libraries: tuple[str, ...]
    loading: str
    cuda_build: bool | None
    cuda: _Numbers
    capabilities: tuple[_Capability, ...]
    # This type is restricted, because the value is written to Dockerfiles.
    compiler: scalars.Compiler
    cxx11_abi: int
    glibc: _Numbers

    @property
    def native(self) -> tuple[str, ...]:
        """The compute capabilities that it has machine code for, for example ``7.0``."""
        return tuple(map(_format_capability, self.capabilities))

    @property
    def ptx(self) -> tuple[str, ...]:
        """The compute capabilities of its PTX; empty if only a part can run on newer GPUs.

        In TensorFlow 2.16 to 2.20, element-wise operations (Add, Cast) have PTX for sm_90a, which
        no other GPU can use. Source: the wheels, read by benchmarks/ptx.py.
        """
        if _HOPPER_ONLY[0] <= Version(self.version) < _HOPPER_ONLY[1]:
            return ()
        ptx = [name for name in self.capabilities if name.startswith("compute_")]
        return tuple(map(_format_capability, ptx))

    @property
    def machine(self) -> str:
        """The machine that it runs on, for example ``x86_64``; empty if its file name has none."""
        return next(filter(None, map(tag_machine, file_tags(self.file))), "")

    @property
    def platform_glibc(self) -> str | None:
        """The oldest glibc that its platform tags support; None if they name none."""
        names = [tag.platform.removesuffix(f"_{self.machine}") for tag in file_tags(self.file)]
        promises = [_LEGACY.get(name) or ".".join(name.split("_")[1:3]) for name in names]
        return min(filter(None, promises), key=Version, default=None)

    def version_of(self, library: str) -> str | None:
        """Return a library's version: ``10.1`` for ``cudart`` if it loads libcudart.so.10.1."""
        start = f"lib{library}.so."
        for name in self.libraries:
            if name.startswith(start):
                return name.removeprefix(start)
        return None


def _format_capability(capability: str) -> str:
    digits = capability.rpartition("_")[2]
    return f"{digits[:-1]}.{digits[-1]}"


def file_tags(file: str) -> frozenset[Tag]:
    """Return the tags in a wheel's file name, as installers read them; none for other files."""
    try:
        return parse_wheel_filename(file)[3]
    except ValueError:  # a version with thousands of digits raises it too
        return frozenset()


def tag_machine(tag: Tag) -> str:
    """Return the machine of a wheel for Linux, for example ``x86_64``; empty for other wheels."""
    if "linux" in tag.platform:
        for machine in MACHINES.values():
            if tag.platform.endswith(f"_{machine}"):
                return machine
    return ""


@dataclass(frozen=True)
class Evidence:
    """All facts, by the sha256 of the file that they are about."""

    facts: Mapping[str, Facts] = field(default_factory=dict)

    def wheel(
        self, distribution: str, version: str, python: str, machine: str = MACHINES["amd64"]
    ) -> WheelFacts | None:
        """Return the facts about a release's wheel for a Python tag, for example ``cp36``."""
        return self._wheels[canonicalize_name(distribution), version, machine].get(python)

    def pythons(
        self, distribution: str, version: str, machine: str = MACHINES["amd64"]
    ) -> tuple[str, ...]:
        """Return the Python tags of a release's wheels; empty if none of the wheels was read."""
        wheels = self._wheels[canonicalize_name(distribution), version, machine]
        return next((wheel.pythons for wheel in wheels.values()), ())

    @cached_property
    def _wheels(self) -> Mapping[tuple[str, str, str], dict[str, WheelFacts]]:
        wheels = defaultdict[tuple[str, str, str], dict[str, WheelFacts]](dict)
        for facts in self.facts.values():
            if isinstance(facts, WheelFacts):
                release = wheels[canonicalize_name(facts.name), facts.version, facts.machine]
                for tag in file_tags(facts.file):
                    release[tag.interpreter] = facts
        return wheels


def read_evidence(path: Path) -> Evidence:
    """Return the evidence in a file; empty if the file does not exist.

    InputError: the file cannot be read, or it is not in the format of ``audit --write``.
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
        reason = getattr(error, "strerror", None) or "not in the format of `imgbuild audit --write`"
        raise InputError(
            f"Cannot read the evidence in {path}: {reason}. Restore the file from git. Or delete "
            "it and run `imgbuild audit --write`, which reads the wheels again."
        ) from error
    return Evidence(facts)
