"""The schema of ``matrix.yaml``: one pydantic model a section.

Versions, names and URLs are the restricted scalars of :mod:`imgbuild.core.scalars`; only fields
typed ``Prose`` hold free text, and those never reach a Dockerfile or a command.
"""

from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Tag, model_validator

from imgbuild.core import scalars
from imgbuild.core.yaml_file import Section
from imgbuild.matrix.components import Cuda, Mpi, Python
from imgbuild.matrix.evidence import Evidence
from imgbuild.matrix.rule_model import Rule, Tags

Variant = Literal["cpu", "gpu"]
#: The Horovod of a row without it.
NONE = "none"


class Pin(Section):
    """The exact version of one component; with the documented one where that cannot work.

    ``documented_exists`` is false if the documented version cannot be had there, such as a package
    of another release of the system.
    """

    version: scalars.Version
    documented: scalars.Version | None = None
    documented_exists: bool = True
    why: scalars.Prose | None = None


class NamedPin(Pin):
    """A pin whose value is a key of a table of the matrix, such as ``openmpi-4.1.4``."""

    version: scalars.Name


class NoHorovod(Section):
    """Horovod is left out, and why."""

    version: Literal["none"]
    documented: None = None
    documented_exists: bool = True
    why: scalars.Prose


def _expand_pin(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    return {"version": value} if isinstance(value, str) else value


AnyPin = Annotated[Pin, BeforeValidator(_expand_pin, json_schema_input_type=scalars.Version | Pin)]


def _pin_kind(value: Any) -> str:  # noqa: ANN401 - whatever YAML holds
    return NONE if isinstance(value, dict) and value.get("version") == NONE else "pin"


#: `none` needs its reason, so it is always a mapping.
HorovodPin = Annotated[
    Annotated[NoHorovod, Tag(NONE)] | Annotated[Pin, Tag("pin")],
    Discriminator(_pin_kind),
    BeforeValidator(_expand_pin, json_schema_input_type=scalars.Version | NoHorovod | Pin),
]
TablePin = Annotated[
    NamedPin, BeforeValidator(_expand_pin, json_schema_input_type=scalars.Name | NamedPin)
]


class Uv(Section):
    """The program uv, in its wheel for Linux: it installs packages if no build gives it."""

    version: scalars.Release
    sha256: scalars.Sha256


class SourceEntry(Section):
    """A file to download. The sha256 is trusted, never the address."""

    url: scalars.Url
    sha256: scalars.Sha256


class Keyring(Section):
    """The key that signs an apt repository: a file of ``images/files/keyrings``, and its id."""

    file: scalars.FileName
    fingerprint: scalars.KeyFingerprint


class Upstream(Section):
    """A site that inputs come from. A mirror replaces its URL as a whole.

    Without ``url`` the tools and the base image know the site.
    """

    kind: Literal["files", "apt", "index"]
    url: scalars.SiteUrl | None = None
    keyring: Keyring | None = None


class OsPackages(Section):
    """Packages of the distribution's archive, by what needs them."""

    runtime: tuple[scalars.AptPackage, ...]
    compiler: tuple[scalars.AptPackage, ...]
    cpython: tuple[scalars.AptPackage, ...] = ()
    gpu: tuple[scalars.AptPackage, ...] = ()


class StackPins(Section):
    """Pins for all images of a stack or an operating system.

    A row overrides its stack, a stack its operating system.
    """

    python: AnyPin | None = None
    mpi: TablePin | None = None
    git: AnyPin | None = None
    miniconda: AnyPin | None = None
    cudnn: AnyPin | None = None
    nccl: AnyPin | None = None


class OperatingSystem(Section):
    """The system, Python, MPI and CUDA of an image."""

    distribution: Literal["debian", "ubuntu"]
    version: scalars.Version
    suite: scalars.Name
    glibc: scalars.Version
    support: scalars.Prose
    #: The image of a registry, by digest; without one the base is made from the archive.
    image: scalars.DigestReference | None = None
    #: NVIDIA's name of it in its repositories.
    nvidia: scalars.Name | None = None
    #: g++ versions of packages.compiler beside the default one, as g++-VERSION.
    compilers: tuple[scalars.Version, ...] = ()
    packages: OsPackages
    pins: StackPins = StackPins()


class TensorFlow(Section):
    """The decisions about one TensorFlow release; ``images/evidence.json`` has what its wheels are.

    ``cudnn`` is the version that its GPU wheel was compiled with, of which the wheel tells the
    major number alone. ``tf_keras`` is the Keras 2 of its minor version, where its own is Keras 3.
    """

    tensorboard: scalars.Release
    tf_keras: scalars.Release | None = None
    distribution: dict[Variant, scalars.Distribution]
    cudnn: scalars.Version | None = None


class Horovod(Section):
    """One Horovod source distribution.

    ``launcher`` says whether it has ``horovodrun``, ``tensorflow`` which releases it was tested
    with here or by its authors, ``nccl`` the operations that it can do with NCCL, ``adasum``
    whether it has the header that ``images/files/adasum_float16.py`` changes, ``cmake`` whether
    CMake builds it. ``one_by_one``: two targets of its CMake, horovod_cuda_kernels and
    compatible_horovod_cuda_kernels, generate one file, which was seen to fail with make -j2. A
    release with a local part, such as ``0.28.1+imgbuild.1``, is that of ``0.28.1`` with our patches
    (``images/files/horovod-patches``).
    """

    sha256: scalars.Sha256
    launcher: bool
    tensorflow: scalars.Specifier
    nccl: tuple[
        Literal["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"], ...
    ] = ("allreduce",)
    adasum: bool = False
    cmake: bool = False
    one_by_one: bool = False


class EndOfLife(Section):
    """Versions of a part that get no security fixes any more, since when, and who says so."""

    part: Literal["tensorflow", "python", "debian", "ubuntu"]
    versions: scalars.Specifier
    since: date | None = None
    source: scalars.Prose


class Accepted(Section):
    """A finding of `imgbuild scan` that counts for nothing until a day, and why.

    ``id`` is that of a vulnerability, such as CVE-2024-1234, or the name of a package with updates.
    """

    id: scalars.FileName
    until: date
    reason: scalars.Prose


class Condition(Section):
    """A requirement or constraint, the images that it holds for, and why.

    ``keep`` says that nobody may change the package in an image, and ``horovod`` that Horovod
    requires the package.
    """

    require: scalars.Requirement
    tensorflow: scalars.Specifier | None = None
    python: scalars.Specifier | None = None
    keep: bool = False
    horovod: bool = False
    why: scalars.Prose


class Companion(Section):
    """The releases of a package that work with some versions of TensorFlow.

    ``require`` is the package with these releases, and ``why`` says who knows it. No release
    works with a TensorFlow that no entry of the package names.
    """

    require: scalars.Requirement
    tensorflow: scalars.Specifier | None = None
    python: scalars.Specifier | None = None
    why: scalars.Prose


class Stack(Section):
    """The parts below TensorFlow, as one stack."""

    summary: scalars.Prose
    os: scalars.Name
    pins: StackPins = StackPins()


class Row(StackPins):
    """One TensorFlow on one stack, in one or both variants.

    ``horovod: {version: none, why: …}`` leaves Horovod out, and MPI with it. ``budget`` is the
    largest size of an image, by variant: a build fails that exceeds it by 5 %. It is no input of
    the image.
    """

    tensorflow: scalars.Release
    stack: scalars.Name
    variants: tuple[Variant, ...] = Field(min_length=1)
    os: scalars.Name | None = None
    horovod: HorovodPin
    cuda: AnyPin | None = None
    budget: dict[Variant, scalars.Megabytes] = Field(default_factory=dict)

    __hash__ = object.__hash__  # of this very row

    @property
    def without_horovod(self) -> bool:
        return self.horovod.version == NONE

    @model_validator(mode="after")
    def _check_mpi(self) -> Self:
        if self.without_horovod and self.mpi:
            raise ValueError("MPI is there for Horovod: leave `mpi` out of a row without one")
        return self

    @model_validator(mode="after")
    def _check_budgets(self) -> Self:
        for variant in {*self.budget} - {*self.variants}:
            listed = ", ".join(self.variants)
            raise ValueError(f"a budget for {variant}, which is no variant of this row: {listed}")
        return self


class Defaults(Section):
    """Defaults for options that are not given; each applies only if such an image exists.

    ``tensorflow`` is what ``--tf`` takes: a minor, which each stack has in a release of its own, or
    a release.
    """

    tensorflow: scalars.Version | None = None
    stack: scalars.Name
    variant: Variant


class Matrix(Section):
    """The whole file."""

    schema_version: Annotated[Literal["1"], Field(alias="schema")]
    repository: scalars.Repository
    epoch: scalars.Timestamp
    defaults: Defaults
    tags: Tags
    upstreams: dict[scalars.Name, Upstream] = Field(default_factory=dict)
    stacks: dict[scalars.Name, Stack]
    operating_systems: dict[scalars.Name, OperatingSystem]
    sources: dict[scalars.Name, SourceEntry]
    python: dict[scalars.Release, Python]
    mpi: dict[scalars.Name, Mpi]
    cuda: dict[scalars.Version, Cuda] = Field(default_factory=dict)
    tensorflow: dict[scalars.Release, TensorFlow]
    horovod: dict[scalars.HorovodRelease, Horovod]
    uv: Uv
    requirements: tuple[Condition, ...] = ()
    constraints: tuple[Condition, ...] = ()
    build_requirements: tuple[Condition, ...] = ()
    companions: tuple[Companion, ...] = ()
    package_layers: dict[scalars.Name, tuple[scalars.Name, ...]] = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    end_of_life: tuple[EndOfLife, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    images: tuple[Row, ...] = Field(min_length=1)
    aliases: dict[scalars.Name, tuple[scalars.Alias, ...]] = Field(default_factory=dict)
    #: The content of ``images/evidence.json``, no part of this file.
    _evidence: Evidence = PrivateAttr(default_factory=Evidence)

    __hash__ = object.__hash__  # of this very matrix

    @property
    def evidence(self) -> Evidence:
        """The facts that were read out of the wheels."""
        return self._evidence

    def with_evidence(self, evidence: Evidence) -> Self:
        """Return the matrix with what was read out of the wheels."""
        matrix = self.model_copy()
        matrix._evidence = evidence  # noqa: SLF001 - a copy of its own
        return matrix

    @property
    def upstream_urls(self) -> dict[str, str]:
        """The sites whose URL the matrix has, by name."""
        return {name: site.url for name, site in self.upstreams.items() if site.url}
