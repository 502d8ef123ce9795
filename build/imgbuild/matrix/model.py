"""The schema of ``matrix.yaml``: one pydantic model a section.

Versions, names and URLs are the restricted scalars of :mod:`imgbuild.scalars`; only fields typed
``Prose`` hold free text, and those never reach a Dockerfile or a command.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from imgbuild import scalars
from imgbuild.matrix.rule_model import Rule, Tags
from imgbuild.yaml_file import Section

Variant = Literal["cpu", "gpu"]
Flavour = Literal["openmpi", "intelmpi"]
WheelTag = Literal["cp36", "cp37", "cp38", "cp39", "cp310", "cp311"]


class Pin(Section):
    """The exact version of one component; with the documented one where that cannot work.

    ``documented_exists`` is false if the documented version cannot be had there, such as a package
    of another release of the system; then ``--as-documented`` keeps the corrected one.
    """

    version: scalars.Version
    documented: scalars.Version | None = None
    documented_exists: bool = True
    why: scalars.Prose | None = None


class NamedPin(Pin):
    """A pin whose value is a key of a table of the matrix, such as ``openmpi-4.1.4``."""

    version: scalars.Name


def _spelled_out(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    return {"version": value} if isinstance(value, str) else value


AnyPin = Annotated[Pin, BeforeValidator(_spelled_out, json_schema_input_type=scalars.Version | Pin)]
TablePin = Annotated[
    NamedPin, BeforeValidator(_spelled_out, json_schema_input_type=scalars.Name | NamedPin)
]


class Source(Section):
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
    """What an image stands on."""

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


class SourcePython(Section):
    """CPython compiled from python.org's source."""

    origin: Annotated[Literal["source"], Field(alias="from")]
    source: scalars.Name
    wheel_tag: WheelTag


class CondaPython(Section):
    """CPython of a conda environment; every package by URL, its sha256 in images/locks."""

    origin: Annotated[Literal["conda"], Field(alias="from")]
    packages: tuple[scalars.Url, ...] = Field(min_length=1)
    wheel_tag: WheelTag

    @field_validator("packages")
    @classmethod
    def _by_https(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        for url in packages:
            if not url.startswith("https:"):
                raise ValueError(
                    f"{url}: a package without a sha256 in the matrix must come by https, since "
                    "its sha256 is recorded (images/locks) from what is downloaded first"
                )
        return packages


class AptPython(Section):
    """The distribution's own CPython; the image's is a virtual environment of it."""

    origin: Annotated[Literal["apt"], Field(alias="from")]
    os: scalars.Name
    packages: tuple[scalars.AptPin, ...] = Field(min_length=1)
    wheel_tag: WheelTag


Python = Annotated[SourcePython | CondaPython | AptPython, Field(discriminator="origin")]


class AnyMpi(Section):
    flavour: Flavour
    version: scalars.Version


class AptMpi(AnyMpi):
    """An MPI from the distribution's archive.

    ``without`` lists packages that others depend on and nothing uses: empty ones replace them.
    """

    origin: Annotated[Literal["apt"], Field(alias="from")]
    os: scalars.Name
    runtime: tuple[scalars.AptPin, ...]
    build: tuple[scalars.AptPin, ...]
    without: tuple[scalars.AptPin, ...] = ()


class SourceMpi(AnyMpi):
    """An MPI compiled from its source."""

    origin: Annotated[Literal["source"], Field(alias="from")]
    source: scalars.Name
    os: tuple[scalars.Name, ...]


class IndexMpi(AnyMpi):
    """An MPI from the Python package index: its run time, and what Horovod is compiled against.

    ``version`` is the vendor's, the two packages may have others: impi 2018.0.3 is 2018.3.222.
    """

    origin: Annotated[Literal["index"], Field(alias="from")]
    version: scalars.Release
    runtime: scalars.Requirement
    build: scalars.Requirement
    os: tuple[scalars.Name, ...]
    licence: scalars.Prose
    licence_name: scalars.Name


Mpi = Annotated[AptMpi | SourceMpi | IndexMpi, Field(discriminator="origin")]


class AnyCuda(Section):
    """One CUDA release: what TensorFlow loads, and what Horovod is compiled with.

    ``driver`` is the oldest driver that runs it; ``newest`` the highest compute capability its
    libraries know; ``cudnn`` and ``nccl`` list the releases that were published for it.
    """

    driver: scalars.Version
    newest: scalars.Capability
    cudnn: tuple[scalars.Version, ...]
    nccl: tuple[scalars.Version, ...]
    os: tuple[scalars.Name, ...]


class AptCuda(AnyCuda):
    """Packages of NVIDIA's repositories."""

    origin: Annotated[Literal["apt"], Field(alias="from")]
    runtime: tuple[scalars.AptPin, ...]
    build: tuple[scalars.AptPin, ...]


class IndexCuda(AnyCuda):
    """NVIDIA's wheels of the Python package index, and the compiler of Debian's archive.

    ``cudnn_package`` and ``nccl_package`` are installed in the pinned versions, beside ``runtime``.
    ``headers`` are wheels, ``build`` packages of ``suite`` and ``component`` that Horovod is
    compiled with, by gcc ``compiler``; its kernels are for ``kernels``, and PTX of the last.
    """

    origin: Annotated[Literal["index"], Field(alias="from")]
    runtime: tuple[scalars.Requirement, ...]
    cudnn_package: scalars.Distribution
    nccl_package: scalars.Distribution
    headers: tuple[scalars.Requirement, ...]
    build: tuple[scalars.AptPin, ...]
    suite: scalars.Name
    component: scalars.Name
    compiler: scalars.Version
    kernels: tuple[scalars.Capability, ...]
    licence: scalars.Prose
    licence_name: scalars.Name


Cuda = Annotated[AptCuda | IndexCuda, Field(discriminator="origin")]


class GpuWheel(Section):
    """What is in a TensorFlow release's GPU wheel, read out of the wheel.

    ``cudnn`` is the version it was compiled with; ``native`` and ``ptx`` are the compute
    capabilities that its kernels exist for, as machine code and as PTX.
    """

    cuda: scalars.Version
    cudnn: scalars.Version
    native: tuple[scalars.Capability, ...]
    ptx: tuple[scalars.Capability, ...]


class TensorFlow(Section):
    """What is true of one TensorFlow release's wheels.

    ``compiler`` is the g++ or Clang that built them, ``pythons`` the tags there are wheels for,
    ``glibc`` the oldest C library that their platform tag admits.
    """

    tensorboard: scalars.Release
    compiler: scalars.Compiler
    pythons: tuple[WheelTag, ...]
    glibc: scalars.Version
    distribution: dict[Variant, scalars.Distribution]
    gpu: GpuWheel


class Horovod(Section):
    """One Horovod source distribution.

    ``launcher`` says whether it has ``horovodrun``, ``tensorflow`` which releases it was tested
    with here or by its authors, ``nccl`` the operations that it can do with NCCL.
    """

    sha256: scalars.Sha256
    launcher: bool
    tensorflow: scalars.Specifier
    nccl: tuple[
        Literal["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"], ...
    ] = ("allreduce",)


class Condition(Section):
    """A requirement or constraint, for which images it holds, and why."""

    require: scalars.Requirement
    tensorflow: scalars.Specifier | None = None
    python: scalars.Specifier | None = None
    why: scalars.Prose


class Stack(Section):
    """What an image stands on, as a whole."""

    summary: scalars.Prose
    os: scalars.Name
    pins: StackPins = StackPins()


class Row(StackPins):
    """One TensorFlow on one stack, in one or both variants.

    ``budget`` is the largest size of an image, by variant: a build fails that exceeds it by 5 %. It
    is no input of the image.
    """

    tensorflow: scalars.Release
    stack: scalars.Name
    variants: tuple[Variant, ...] = Field(min_length=1)
    os: scalars.Name | None = None
    horovod: AnyPin
    cuda: AnyPin | None = None
    budget: dict[Variant, scalars.Megabytes] = Field(default_factory=dict)

    __hash__ = object.__hash__  # of this very row

    @model_validator(mode="after")
    def _budgets_of_its_images(self) -> Self:
        for variant in {*self.budget} - {*self.variants}:
            listed = ", ".join(self.variants)
            raise ValueError(f"a budget for {variant}, which is no variant of this row: {listed}")
        return self


class Defaults(Section):
    """What a selection means that does not say it; each only where there is such an image.

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
    sources: dict[scalars.Name, Source]
    python: dict[scalars.Release, Python]
    mpi: dict[scalars.Name, Mpi]
    cuda: dict[scalars.Version, Cuda] = Field(default_factory=dict)
    tensorflow: dict[scalars.Release, TensorFlow]
    horovod: dict[scalars.Release, Horovod]
    requirements: tuple[Condition, ...] = ()
    constraints: tuple[Condition, ...] = ()
    build_requirements: tuple[Condition, ...] = ()
    package_layers: dict[scalars.Name, tuple[scalars.Name, ...]] = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    images: tuple[Row, ...] = Field(min_length=1)
    aliases: dict[scalars.Name, tuple[scalars.Alias, ...]] = Field(default_factory=dict)

    __hash__ = object.__hash__  # of this very matrix

    @property
    def upstream_urls(self) -> dict[str, str]:
        """The sites that settings can mirror, by name."""
        return {name: site.url for name, site in self.upstreams.items() if site.url}
