"""The schema of what images are made of: each Python, MPI and CUDA of ``matrix.yaml``."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from imgbuild.core import scalars
from imgbuild.core.yaml_file import Section
from imgbuild.matrix.evidence import WheelTag

Flavour = Literal["openmpi", "intelmpi", "no-mpi"]
#: The flavour of an image without MPI, which has no Horovod either.
WITHOUT_MPI: Final = "no-mpi"


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
    def _require_https(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
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


class AptMpi(Section):
    """An MPI from the distribution's archive.

    ``without`` lists packages that others depend on and nothing uses: empty ones replace them.
    """

    flavour: Literal["openmpi", "intelmpi"]
    version: scalars.Version
    origin: Annotated[Literal["apt"], Field(alias="from")]
    os: scalars.Name
    runtime: tuple[scalars.AptPin, ...]
    build: tuple[scalars.AptPin, ...]
    without: tuple[scalars.AptPin, ...] = ()


class SourceMpi(Section):
    """An MPI compiled from its source."""

    flavour: Literal["openmpi", "intelmpi"]
    version: scalars.Version
    origin: Annotated[Literal["source"], Field(alias="from")]
    source: scalars.Name
    os: tuple[scalars.Name, ...]


class IndexMpi(Section):
    """An MPI from the Python package index: its run time, and what Horovod is compiled against.

    ``version`` is the vendor's, the two packages may have others: impi 2018.0.3 is 2018.3.222.
    """

    flavour: Literal["openmpi", "intelmpi"]
    version: scalars.Release
    origin: Annotated[Literal["index"], Field(alias="from")]
    runtime: scalars.Requirement
    build: scalars.Requirement
    os: tuple[scalars.Name, ...]
    licence: scalars.Prose
    licence_name: scalars.Name


Mpi = Annotated[AptMpi | SourceMpi | IndexMpi, Field(discriminator="origin")]


@dataclass(frozen=True)
class NoMpi:
    """Stands for the MPI of an image without MPI."""

    flavour: Flavour = WITHOUT_MPI
    version: str = ""
    origin: Literal["none"] = "none"


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
