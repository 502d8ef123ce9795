"""The schema of ``matrix.yaml``: one pydantic model for each section.

Versions, names and URLs are restricted scalars of :mod:`imgbuild.core.scalars`. Only fields of type
``Prose`` hold free text, and free text never reaches a Dockerfile or a command.
"""

from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Tag, model_validator

from imgbuild.core import scalars
from imgbuild.core.yaml_file import Section
from imgbuild.matrix.components import Cuda, Mpi, Python
from imgbuild.matrix.evidence import Architecture, Evidence
from imgbuild.matrix.rule_model import Rule, Tags

Variant = Literal["cpu", "gpu"]
#: The keys of a release's packages on the index: its variants, and the variant cpu for arm64.
DistributionKey = Literal["cpu", "gpu", "arm64"]
#: The Horovod version of a row without Horovod.
NONE = "none"


class Pin(Section):
    """The exact version of one component.

    ``documented`` is the version in the original documentation, if it differs, and ``why`` the
    reason. ``documented_exists`` is false if the documented version is not available for these
    images.
    """

    version: scalars.Version
    documented: scalars.Version | None = None
    documented_exists: bool = True
    why: scalars.Prose | None = None


class NamedPin(Pin):
    """A pin whose value is a key of a table of the matrix, for example ``openmpi-4.1.4``."""

    version: scalars.Name


class NoHorovod(Section):
    """The pin of a row without Horovod; ``why`` is the reason."""

    version: Literal["none"]
    documented: None = None
    documented_exists: bool = True
    why: scalars.Prose


def _expand_pin(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    return {"version": value} if isinstance(value, str) else value


AnyPin = Annotated[Pin, BeforeValidator(_expand_pin, json_schema_input_type=scalars.Version | Pin)]


def _pin_kind(value: Any) -> str:  # noqa: ANN401 - whatever YAML holds
    return NONE if isinstance(value, dict) and value.get("version") == NONE else "pin"


#: `none` is always written as a mapping, because it requires a reason.
HorovodPin = Annotated[
    Annotated[NoHorovod, Tag(NONE)] | Annotated[Pin, Tag("pin")],
    Discriminator(_pin_kind),
    BeforeValidator(_expand_pin, json_schema_input_type=scalars.Version | NoHorovod | Pin),
]
TablePin = Annotated[
    NamedPin, BeforeValidator(_expand_pin, json_schema_input_type=scalars.Name | NamedPin)
]


class Uv(Section):
    """The Linux wheels of uv, which installs the packages of a build.

    ``sha256`` is that of the wheel for amd64, ``arm64`` that of the wheel for arm64. `imgbuild
    build` supplies the uv of its own installation if it runs in the image. Other builds download
    it.
    """

    version: scalars.Release
    sha256: scalars.Sha256
    arm64: scalars.Sha256 | None = None

    @property
    def hashes(self) -> tuple[str, ...]:
        """The sha256 of all wheels."""
        return (self.sha256, self.arm64) if self.arm64 else (self.sha256,)


class SourceEntry(Section):
    """A file to download. Only its sha256 is trusted, not its URL."""

    url: scalars.Url
    sha256: scalars.Sha256


class Keyring(Section):
    """The key that signs an apt repository: a file in ``images/files/keyrings``."""

    file: scalars.FileName
    fingerprint: scalars.KeyFingerprint


class Upstream(Section):
    """A site that inputs are downloaded from. A mirror replaces the whole URL.

    Without ``url``, the tools and the base image already know the site.
    """

    kind: Literal["files", "apt", "index"]
    url: scalars.SiteUrl | None = None
    keyring: Keyring | None = None


class OsPackages(Section):
    """Packages of the distribution's archive, by purpose."""

    runtime: tuple[scalars.AptPackage, ...]
    compiler: tuple[scalars.AptPackage, ...]
    cpython: tuple[scalars.AptPackage, ...] = ()
    gpu: tuple[scalars.AptPackage, ...] = ()


class StackPins(Section):
    """Pins for all images of a stack or an operating system.

    A row overrides its stack, and a stack overrides its operating system.
    """

    python: AnyPin | None = None
    mpi: TablePin | None = None
    git: AnyPin | None = None
    miniconda: AnyPin | None = None
    cudnn: AnyPin | None = None
    nccl: AnyPin | None = None


class OperatingSystem(Section):
    """A release of a distribution: its base image, packages and pins."""

    distribution: Literal["debian", "ubuntu"]
    version: scalars.Version
    suite: scalars.Name
    glibc: scalars.Version
    support: scalars.Prose
    #: The base image by digest. Without it, the base is built from the archive.
    image: scalars.DigestReference | None = None
    #: The name of this release in NVIDIA's apt repositories.
    nvidia: scalars.Name | None = None
    #: Versions of the packages g++-VERSION in packages.compiler, in addition to the default g++.
    compilers: tuple[scalars.Version, ...] = ()
    packages: OsPackages
    pins: StackPins = StackPins()


class TensorFlow(Section):
    """Decisions about one TensorFlow release. ``images/evidence.json`` has the facts of its wheels.

    ``cudnn`` is the version that the GPU wheel was compiled with. It is set here because the facts
    of the wheel only have the major number. ``tf_keras`` is the release of Keras 2 for a TensorFlow
    whose own Keras is Keras 3. ``distribution`` names the package of each variant, and that of the
    variant cpu for ``arm64``, which may be another one.
    """

    tensorboard: scalars.Release
    tf_keras: scalars.Release | None = None
    distribution: dict[DistributionKey, scalars.Distribution]
    cudnn: scalars.Version | None = None


class Horovod(Section):
    """One Horovod source distribution.

    - ``launcher``: whether it has ``horovodrun``.
    - ``tensorflow``: the releases that it was tested with, here or by its authors.
    - ``nccl``: the operations that it supports with NCCL.
    - ``adasum``: whether it has the header that ``images/files/adasum_float16.py`` changes.
    - ``cmake``: whether CMake builds it.
    - ``one_by_one``: whether CMake must build one target at a time. The targets
      horovod_cuda_kernels and compatible_horovod_cuda_kernels generate the same file, and a build
      with make -j2 failed.

    A release with a local part, for example ``0.28.1+imgbuild.1``, is the source of ``0.28.1`` with
    our patches (``images/files/horovod-patches``).
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
    """Versions of a part that no longer get security fixes, with the date and the source."""

    part: Literal["tensorflow", "python", "debian", "ubuntu"]
    versions: scalars.Specifier
    since: date | None = None
    source: scalars.Prose


class Accepted(Section):
    """A finding of `imgbuild scan` that is accepted until a day, and the reason.

    ``id`` is the ID of a vulnerability, for example CVE-2024-1234, or the name of a package with
    updates.
    """

    id: scalars.FileName
    until: date
    reason: scalars.Prose


class Condition(Section):
    """A requirement or constraint, the images that it applies to, and the reason.

    ``keep`` means that nobody may change the package in an image, and ``horovod`` that Horovod
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

    ``require`` names the package and these releases, ``why`` the source. If no entry of a package
    covers a TensorFlow version, no release works with that version.
    """

    require: scalars.Requirement
    tensorflow: scalars.Specifier | None = None
    python: scalars.Specifier | None = None
    why: scalars.Prose


class Stack(Section):
    """A stack: the operating system and the pins that its rows share."""

    summary: scalars.Prose
    os: scalars.Name
    pins: StackPins = StackPins()


class Row(StackPins):
    """One TensorFlow on one stack, in one or both variants.

    ``horovod: {version: none, why: …}`` omits Horovod and MPI. ``budget`` is the expected size of
    each variant's image in megabytes. A build fails if the image is over 5 % larger, or over 16 %
    in a containerd image store. ``ran_on`` are the GPUs on which the suite ``gpu_runs`` passed in
    the GPU image. Neither is an input of the image. ``architectures`` are those that the CPU image
    is locked for. GPU images are for amd64 alone, because no wheel for arm64 has CUDA.
    """

    tensorflow: scalars.Release
    stack: scalars.Name
    variants: tuple[Variant, ...] = Field(min_length=1)
    architectures: tuple[Architecture, ...] = ("amd64",)
    os: scalars.Name | None = None
    horovod: HorovodPin
    cuda: AnyPin | None = None
    budget: dict[Variant, scalars.Megabytes] = Field(default_factory=dict)
    ran_on: tuple[scalars.Prose, ...] = ()

    __hash__ = object.__hash__  # by identity, because its dicts have no hash

    def is_for(self, variant: Variant, architecture: Architecture) -> bool:
        """Return whether the image of one variant is for an architecture."""
        return architecture == "amd64" or (variant == "cpu" and architecture in self.architectures)

    @property
    def without_horovod(self) -> bool:
        return self.horovod.version == NONE

    @model_validator(mode="after")
    def _check_mpi(self) -> Self:
        if self.without_horovod and self.mpi:
            raise ValueError("only Horovod uses MPI: remove `mpi`, because this row has no Horovod")
        return self

    @model_validator(mode="after")
    def _check_architectures(self) -> Self:
        if "amd64" not in self.architectures:
            raise ValueError("every row has the architecture amd64: add it to `architectures`")
        if "arm64" in self.architectures and "cpu" not in self.variants:
            raise ValueError("arm64 is for a row with the variant cpu: remove it")
        return self

    @model_validator(mode="after")
    def _check_budgets(self) -> Self:
        for variant in {*self.budget} - {*self.variants}:
            listed = ", ".join(self.variants)
            raise ValueError(f"a budget for {variant}, but the variants of this row are: {listed}")
        if self.ran_on and "gpu" not in self.variants:
            raise ValueError("`ran_on` is for a row with the variant gpu: remove it")
        return self


class Defaults(Section):
    """Defaults for options that are not given; each applies only if such an image exists.

    ``tensorflow`` is a value for ``--tf``: a release, or a minor version, of which each stack may
    have a different release.
    """

    tensorflow: scalars.Version | None = None
    stack: scalars.Name
    variant: Variant


class Matrix(Section):
    """The whole file ``matrix.yaml``."""

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
    #: The content of ``images/evidence.json``, which is a separate file.
    _evidence: Evidence = PrivateAttr(default_factory=Evidence)

    __hash__ = object.__hash__  # by identity, as for rows

    @property
    def evidence(self) -> Evidence:
        """The facts that were read from the wheels."""
        return self._evidence

    def with_evidence(self, evidence: Evidence) -> Self:
        """Return the matrix with facts that were read from the wheels."""
        matrix = self.model_copy()
        matrix._evidence = evidence  # noqa: SLF001 - the copy is ours
        return matrix

    @property
    def upstream_urls(self) -> dict[str, str]:
        """The URL of each site that has one, by name."""
        return {name: site.url for name, site in self.upstreams.items() if site.url}
