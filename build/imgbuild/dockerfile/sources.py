"""The files that the build of an image downloads, by what they are for."""

from dataclasses import dataclass

from imgbuild.matrix.images import Image


@dataclass(frozen=True)
class NamedSource:
    """A download as the Dockerfile has it: ``argument`` is the ARG that holds its sha256."""

    argument: str
    url: str
    sha256: str

    @property
    def file_name(self) -> str:
        return file_name(self.url)


def file_name(url: str) -> str:
    """Return the name of a download in the build context."""
    return url.rsplit("/", 1)[1]


def named_sources(image: Image) -> dict[str, NamedSource]:
    """Return the image's downloads by what they are for: cpython, miniconda, mpi."""
    pins = {pin.component: pin for pin in image.pins}
    names = {"cpython": "python", "miniconda": "miniconda", "mpi": "mpi"}
    return {
        name: NamedSource(f"SHA256_{name.upper()}", pin.source, pin.sha256)
        for name, component in names.items()
        if (pin := pins.get(component)) and pin.sha256
    }
