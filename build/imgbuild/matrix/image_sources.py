"""The source files that the Dockerfile of an image downloads."""

from imgbuild.core.sources import Source
from imgbuild.matrix.images import Image

#: The component that each source provides, by the key of the source in templates.
_COMPONENTS = {"cpython": "python", "miniconda": "miniconda", "mpi": "mpi"}


def file_name(url: str) -> str:
    """Return the file name of a download in the build context."""
    return url.rsplit("/", 1)[1]


def image_sources(image: Image) -> dict[str, Source]:
    """Return the image's sources by key: ``cpython``, ``miniconda`` and ``mpi``.

    The ARGs ``SHA256_CPYTHON``, ``SHA256_MINICONDA`` and ``SHA256_MPI`` of the Dockerfile have
    their sha256.
    """
    pins = {pin.component: pin for pin in image.pins}
    sources = {}
    for use, component in _COMPONENTS.items():
        pin = pins.get(component)
        if pin and pin.sha256:
            sources[use] = Source(file_name(pin.source), pin.source, pin.sha256)
    return sources
