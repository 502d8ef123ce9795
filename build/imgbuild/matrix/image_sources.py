"""The files that the Dockerfile of an image downloads, by what they are for."""

from imgbuild.core.sources import Source
from imgbuild.matrix.images import Image

#: The use of a source, and the component that is made from it.
_COMPONENTS = {"cpython": "python", "miniconda": "miniconda", "mpi": "mpi"}


def file_name(url: str) -> str:
    """Return the name of a download in the build context."""
    return url.rsplit("/", 1)[1]


def image_sources(image: Image) -> dict[str, Source]:
    """Return the image's downloads by what they are for: cpython, miniconda, mpi.

    ``SHA256_CPYTHON`` and so on are the ARGs of the Dockerfile that hold their sha256.
    """
    pins = {pin.component: pin for pin in image.pins}
    sources = {}
    for use, component in _COMPONENTS.items():
        pin = pins.get(component)
        if pin and pin.sha256:
            sources[use] = Source(file_name(pin.source), pin.source, pin.sha256)
    return sources
