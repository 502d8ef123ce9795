"""What a schema cannot say: every reference exists, every image has its pins, none is there twice.

Each check yields faults with the location of the offending value and what would be allowed.
"""

from collections.abc import Collection, Iterator

from imgbuild.matrix.model import Matrix, NamedPin, Pin, Row, Variant
from imgbuild.yaml_document import Fault, Location

#: The pins a variant cannot be without, beside those every image has.
GPU_PINS = ("cuda", "cudnn", "nccl")
COMMON_PINS = ("python", "mpi", "git")


def find_faults(matrix: Matrix) -> list[Fault]:
    """Return every broken reference, missing pin and duplicate of the matrix."""
    return [
        *_defaults(matrix),
        *_stacks(matrix),
        *_tables(matrix),
        *(fault for i, row in enumerate(matrix.images) for fault in _row(matrix, i, row)),
        *_duplicates(matrix),
    ]


def _missing(
    kind: str, value: str, allowed: Collection[str], location: Location
) -> Iterator[Fault]:
    if value not in allowed:
        known = ", ".join(allowed) or "none"
        yield Fault(location, f"no {kind} {value!r} in the matrix; there are: {known}")


def _defaults(matrix: Matrix) -> Iterator[Fault]:
    yield from _missing("stack", matrix.defaults.stack, matrix.stacks, ("defaults", "stack"))


def _stacks(matrix: Matrix) -> Iterator[Fault]:
    for name, stack in matrix.stacks.items():
        at: Location = ("stacks", name)
        yield from _missing("operating system", stack.os, matrix.operating_systems, (*at, "os"))
        yield from _pin_references(matrix, (*at, "pins"), stack.pins.python, stack.pins.mpi)


def _pin_references(
    matrix: Matrix, at: Location, python: Pin | None, mpi: NamedPin | None
) -> Iterator[Fault]:
    if python:
        yield from _missing("Python", python.version, matrix.python, (*at, "python"))
    if mpi:
        yield from _missing("MPI", mpi.version, matrix.mpi, (*at, "mpi"))


def _tables(matrix: Matrix) -> Iterator[Fault]:
    for version, python in matrix.python.items():
        names = (python.source,) if python.origin == "source" else python.packages
        for name in names:
            yield from _missing("source", name, matrix.sources, ("python", version))
    for name, mpi in matrix.mpi.items():
        if mpi.origin == "source":
            yield from _missing("source", mpi.source, matrix.sources, ("mpi", name, "source"))
        if mpi.origin == "apt":
            systems = matrix.operating_systems
            yield from _missing("operating system", mpi.os, systems, ("mpi", name, "os"))


def _row(matrix: Matrix, index: int, row: Row) -> Iterator[Fault]:
    at: Location = ("images", index)
    yield from _missing("TensorFlow", row.tensorflow, matrix.tensorflow, (*at, "tensorflow"))
    yield from _missing("stack", row.stack, matrix.stacks, (*at, "stack"))
    yield from _missing("Horovod", row.horovod.version, matrix.horovod, (*at, "horovod"))
    yield from _pin_references(matrix, at, row.python, row.mpi)
    if row.os:
        yield from _missing("operating system", row.os, matrix.operating_systems, (*at, "os"))
    if row.cuda:
        yield from _missing("CUDA", row.cuda.version, matrix.cuda, (*at, "cuda"))
    for variant in row.variants:
        yield from _variant(matrix, row, variant, at)


def _variant(matrix: Matrix, row: Row, variant: Variant, at: Location) -> Iterator[Fault]:
    stack = matrix.stacks.get(row.stack)
    for pin in COMMON_PINS if stack else ():
        if getattr(row, pin) is None and getattr(stack.pins if stack else row, pin) is None:
            yield Fault(at, f"pin {pin!r} is missing; set it here or in stacks.{row.stack}.pins")
    for pin in GPU_PINS if variant == "gpu" else ():
        if getattr(row, pin) is None:
            yield Fault(at, f"pin {pin!r} is missing; the gpu variant needs it")
    tensorflow = matrix.tensorflow.get(row.tensorflow)
    if tensorflow and variant not in tensorflow.distribution:
        where = f"tensorflow.{row.tensorflow}.distribution"
        yield Fault((*at, "variants"), f"{where} names no {variant} distribution")


def _duplicates(matrix: Matrix) -> Iterator[Fault]:
    seen: dict[tuple[str, str, str], int] = {}
    for index, row in enumerate(matrix.images):
        for variant in row.variants:
            minor = row.tensorflow.rsplit(".", 1)[0]
            first = seen.setdefault((minor, row.stack, variant), index)
            if first != index or row.variants.count(variant) > 1:
                what = f"TensorFlow {minor} {variant} on {row.stack}"
                yield Fault(("images", index), f"{what} is already image {first + 1} of the list")
                break
