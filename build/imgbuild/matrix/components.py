"""The schema of the tables ``python``, ``mpi`` and ``cuda`` in ``matrix.yaml``."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from imgbuild.core import scalars
from imgbuild.core.yaml_file import Section
from imgbuild.matrix.evidence import WheelTag

Flavour = Literal["openmpi", "intelmpi", "no-mpi"]
#: The flavour of an image without MPI. Such an image has no Horovod.
WITHOUT_MPI: Final = "no-mpi"


class SourcePython(Section):
    """CPython compiled from the source release on python.org."""

    origin: Annotated[Literal["source"], Field(alias="from")]
    source: scalars.Name
    wheel_tag: WheelTag


class CondaPython(Section):
    """CPython in a conda environment of packages with fixed URLs.

    ``images/locks`` has the sha256 of each package.
    """

    origin: Annotated[Literal["conda"], Field(alias="from")]
    packages: tuple[scalars.Url, ...] = Field(min_length=1)
    wheel_tag: WheelTag

    @field_validator("packages")
    @classmethod
    def _require_https(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        for url in packages:
            if not url.startswith("https:"):
                raise ValueError(
                    f"{url} must use https: the matrix has no sha256 for conda packages, so "
                    "`imgbuild lock` reads it from the channel. Change the URL to https"
                )
        return packages


class AptPython(Section):
    """CPython from the distribution's archive. The image gets a virtual environment of it."""

    origin: Annotated[Literal["apt"], Field(alias="from")]
    os: scalars.Name
    packages: tuple[scalars.AptPin, ...] = Field(min_length=1)
    wheel_tag: WheelTag


Python = Annotated[SourcePython | CondaPython | AptPython, Field(discriminator="origin")]


class AptMpi(Section):
    """An MPI from the distribution's archive.

    ``without`` lists dependencies that nothing uses. An empty package replaces each of them.
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
    """An MPI from the Python package index.

    ``runtime`` is the package that the image gets, ``build`` the package that Horovod is compiled
    against. ``version`` is the vendor's version. The packages may have other version numbers: impi
    2018.0.3 is version 2018.3.222.
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
    """A placeholder for the MPI of an image without MPI."""

    flavour: Flavour = WITHOUT_MPI
    version: str = ""
    origin: Literal["none"] = "none"


class AnyCuda(Section):
    """One CUDA release, for TensorFlow at run time and for the compilation of Horovod.

    ``driver`` is the oldest driver that supports the release. ``newest`` is the highest compute
    capability that its libraries support. ``cudnn`` and ``nccl`` list the releases of cuDNN and
    NCCL that NVIDIA published for it.
    """

    driver: scalars.Version
    newest: scalars.Capability
    cudnn: tuple[scalars.Version, ...]
    nccl: tuple[scalars.Version, ...]
    os: tuple[scalars.Name, ...]


class AptCuda(AnyCuda):
    """CUDA from NVIDIA's apt repositories."""

    origin: Annotated[Literal["apt"], Field(alias="from")]
    runtime: tuple[scalars.AptPin, ...]
    build: tuple[scalars.AptPin, ...]


class IndexCuda(AnyCuda):
    """CUDA from NVIDIA's wheels on the Python package index, with nvcc from Debian's archive.

    The image gets ``runtime``, and ``cudnn_package`` and ``nccl_package`` in the pinned versions.
    Horovod is compiled with the wheels ``headers``, the Debian packages ``build`` from ``suite``
    and ``component``, and gcc ``compiler``. Its kernels are machine code for the compute
    capabilities ``kernels``, and PTX for the last of them.
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
