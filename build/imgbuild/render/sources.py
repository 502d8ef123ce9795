"""The downloads that an image's Dockerfile names: where each is used, by file name and sha256."""

from dataclasses import dataclass

from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Source


@dataclass(frozen=True)
class NamedSource:
    """A download as the Dockerfile has it: ``argument`` is the ARG that holds its sha256."""

    argument: str
    source: Source

    @property
    def file_name(self) -> str:
        """The last part of its URL: its name in the build context."""
        return file_name(self.source.url)

    @property
    def sha256(self) -> str:
        """The sha256 that the matrix pins."""
        return self.source.sha256


def file_name(url: str) -> str:
    """Return the last part of a URL."""
    return url.rsplit("/", 1)[1]


def named_sources(image: Image) -> dict[str, NamedSource]:
    """Return the image's downloads by what they are for: cpython, miniconda, mpi."""
    python, mpi = image.python, image.mpi
    found = {}
    if python.origin == "source":
        found["cpython"] = NamedSource("SHA256_CPYTHON", image.source(python.source))
    else:
        miniconda = image.source(f"miniconda-{image.version_of('miniconda')}")
        found["miniconda"] = NamedSource("SHA256_MINICONDA", miniconda)
    if mpi.origin in {"source", "installer"}:
        found["mpi"] = NamedSource("SHA256_MPI", image.source(mpi.source))
    return found
