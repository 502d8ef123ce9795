"""What a rule can ask of an image: its pins, and what the matrix's tables know of them."""

from collections.abc import Iterable, Mapping

from imgbuild.matrix.image import Image
from imgbuild.matrix.model import Matrix

#: The table of the matrix that a component's pin names a key of.
TABLES = {
    "tensorflow": "tensorflow",
    "python": "python",
    "mpi": "mpi",
    "horovod": "horovod",
    "cuda": "cuda",
    "os": "operating_systems",
}

Pins = Mapping[str, str]
Value = str | tuple[str, ...]


def pins_of(image: Image) -> Pins:
    """Return the image's pins by component, each as the matrix's tables spell it."""
    pins = {pin.component: pin.version for pin in image.pins}
    return {**pins, "mpi": image.mpi_name, "os": image.os_name}


def look_up(matrix: Matrix, pins: Pins, fact: str) -> Value | None:
    """Return a pin (``cuda``) or a field of its entry (``cuda.os``); None if there is none."""
    component, *path = fact.split(".")
    if component not in pins:
        return None
    if not path:
        return pins[component]
    found: object = getattr(matrix, TABLES[component])[pins[component]]
    for part in path:
        found = getattr(found, part, None)
    return found if isinstance(found, str | tuple) else None


def known_values(matrix: Matrix, component: str) -> tuple[str, ...]:
    """Return every value of a pin that the matrix's tables have, in their order."""
    if component in TABLES:
        return tuple(getattr(matrix, TABLES[component]))
    # cuDNN and NCCL have no table of their own: each CUDA release lists its own.
    return _once(value for cuda in matrix.cuda.values() for value in getattr(cuda, component))


def _once(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
