"""What ``matrix.yaml`` may say: one pydantic model a section.

Versions, names and URLs are the restricted scalars of :mod:`imgbuild.values`; only fields typed
``Prose`` hold free text, and those never reach a Dockerfile or a command.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from imgbuild.values import (
    AptPackage,
    AptPin,
    Distribution,
    Name,
    Prose,
    Release,
    Repository,
    Requirement,
    Sha256,
    Specifier,
    Timestamp,
    Url,
    Version,
)

Variant = Literal["cpu", "gpu"]
Flavour = Literal["openmpi", "intelmpi", "mpich"]


class Section(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Pin(Section):
    """The exact version of one component; with the documented one where that cannot work."""

    version: Version
    documented: Version | None = None
    why: Prose | None = None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema of both spellings: the bare version and the mapping."""
        mapping = handler(core_schema)
        return {"anyOf": [handler.resolve_ref_schema(mapping)["properties"]["version"], mapping]}


class NamedPin(Pin):
    """A pin whose value is a key of a table of the matrix, such as ``openmpi-4.1.4``."""

    version: Name


def _spelled_out(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    return {"version": value} if isinstance(value, str) else value


AnyPin = Annotated[Pin, BeforeValidator(_spelled_out)]
TablePin = Annotated[NamedPin, BeforeValidator(_spelled_out)]


class Source(Section):
    """A file to download. The sha256 is what is trusted, never the address."""

    url: Url
    sha256: Sha256


class OsPackages(Section):
    """Packages of the distribution's archive, by what needs them."""

    runtime: tuple[AptPackage, ...]
    compiler: tuple[AptPackage, ...]
    cpython: tuple[AptPackage, ...] = ()


class OperatingSystem(Section):
    """What an image stands on."""

    distribution: Literal["debian", "ubuntu"]
    version: Version
    suite: Name
    glibc: Version
    support: Prose
    packages: OsPackages


class SourcePython(Section):
    """CPython compiled from python.org's source."""

    origin: Annotated[Literal["source"], Field(alias="from")]
    source: Name
    wheel_tag: Literal["cp36", "cp37", "cp38"]


class CondaPython(Section):
    """CPython of a conda environment; every package by explicit source."""

    origin: Annotated[Literal["conda"], Field(alias="from")]
    packages: tuple[Name, ...]
    wheel_tag: Literal["cp36", "cp37", "cp38"]


Python = Annotated[SourcePython | CondaPython, Field(discriminator="origin")]


class AptMpi(Section):
    """An MPI from the distribution's archive."""

    flavour: Flavour
    version: Version
    origin: Annotated[Literal["apt"], Field(alias="from")]
    os: Name
    runtime: tuple[AptPin, ...]
    build: tuple[AptPin, ...]


class SourceMpi(Section):
    """An MPI compiled or unpacked from a download."""

    flavour: Flavour
    version: Version
    origin: Annotated[Literal["source"], Field(alias="from")]
    source: Name


class IndexMpi(Section):
    """An MPI from the Python package index (Intel MPI's ``impi-rt``)."""

    flavour: Flavour
    version: Version
    origin: Annotated[Literal["index"], Field(alias="from")]
    runtime: Distribution
    build: Distribution


Mpi = Annotated[AptMpi | SourceMpi | IndexMpi, Field(discriminator="origin")]


class Cuda(Section):
    """One CUDA release as packages, by operating system: what runs, and what builds Horovod."""

    driver: Version
    runtime: dict[Name, tuple[AptPin, ...]]
    build: dict[Name, tuple[AptPin, ...]]


class TensorFlow(Section):
    """What is true of one TensorFlow release's wheels."""

    tensorboard: Version
    compiler: Version
    distribution: dict[Variant, Distribution]


class Horovod(Section):
    """One Horovod source distribution: its sha256, and whether it has ``horovodrun``."""

    sha256: Sha256
    launcher: bool


class Condition(Section):
    """A requirement or constraint, for which images it holds, and why."""

    require: Requirement
    tensorflow: Specifier | None = None
    python: Specifier | None = None
    why: Prose


class StackPins(Section):
    """The pins that a stack gives to all its images; a row may override each."""

    python: AnyPin | None = None
    mpi: TablePin | None = None
    git: AnyPin | None = None
    miniconda: TablePin | None = None


class Stack(Section):
    """What an image stands on, as a whole."""

    summary: Prose
    os: Name
    pins: StackPins = StackPins()


class Row(StackPins):
    """One TensorFlow on one stack, in one or both variants."""

    tensorflow: Release
    stack: Name
    variants: tuple[Variant, ...] = Field(min_length=1)
    os: Name | None = None
    horovod: AnyPin
    cuda: AnyPin | None = None
    cudnn: AnyPin | None = None
    nccl: AnyPin | None = None


class Defaults(Section):
    """What a selection means when it names neither stack nor variant."""

    stack: Name
    variant: Variant


class Matrix(Section):
    """The whole file."""

    schema_version: Annotated[Literal["1"], Field(alias="schema")]
    repository: Repository
    epoch: Timestamp
    defaults: Defaults
    stacks: dict[Name, Stack]
    operating_systems: dict[Name, OperatingSystem]
    sources: dict[Name, Source]
    python: dict[Release, Python]
    mpi: dict[Name, Mpi]
    cuda: dict[Version, Cuda] = Field(default_factory=dict)
    tensorflow: dict[Release, TensorFlow]
    horovod: dict[Release, Horovod]
    requirements: tuple[Condition, ...] = ()
    constraints: tuple[Condition, ...] = ()
    build_requirements: tuple[Condition, ...] = ()
    images: tuple[Row, ...] = Field(min_length=1)
