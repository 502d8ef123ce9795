"""Which inputs of a stored image are others than the matrix says, by its labels. Pure."""

from collections.abc import Iterator, Mapping

from imgbuild.dockerfile.labels import NAMESPACE
from imgbuild.matrix.images import Image

#: Written by building/targets.py, in the words of plan/inputs.py.
BASE = f"{NAMESPACE}.input.base"
CPYTHON = f"{NAMESPACE}.input.cpython"
SUBSTITUTES = f"{NAMESPACE}.input.substitutes"
BASE_DIGEST = "org.opencontainers.image.base.digest"
_NOT_SAID = "nowhere that its labels say"


def substitutes(image: Image, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return, in words, what was built in that is not what the matrix says."""
    return (*_base(image, labels), *_interpreter(labels), *_downloads(labels))


def _base(image: Image, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield another base: from elsewhere, or another digest than the matrix pins."""
    origin, digest = labels.get(BASE, _NOT_SAID), labels.get(BASE_DIGEST, "")
    usual = "registry" if image.os.image else "bootstrapped"
    if origin != usual:
        yield f"its base image {image.os_name} is substituted: {origin}, not {usual} ({digest})"
    elif image.os.image and image.os.image.rpartition("@")[2] != digest:
        yield f"its base image {image.os_name} is substituted: {digest}, not the matrix's"


def _interpreter(labels: Mapping[str, str]) -> Iterator[str]:
    origin = labels.get(CPYTHON, _NOT_SAID)
    if origin != "source":
        yield f"its CPython is substituted: {origin}, not the pinned one"


def _downloads(labels: Mapping[str, str]) -> Iterator[str]:
    if labels.get(SUBSTITUTES):
        yield f"downloads are substituted: {labels[SUBSTITUTES]}"
