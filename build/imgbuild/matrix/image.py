"""One image of the family: a row of the matrix in one variant, with everything resolved."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from imgbuild.matrix.model import (
    Horovod,
    Matrix,
    Mpi,
    OperatingSystem,
    Python,
    Row,
    Source,
    TensorFlow,
    Variant,
)
from imgbuild.matrix.pins import ResolvedPin, resolve_pins


@dataclass(frozen=True)
class Image:
    """One TensorFlow version in one variant on one stack, and the pins of what is in it."""

    tensorflow: str
    variant: Variant
    stack: str
    os_name: str
    repository: str
    pins: tuple[ResolvedPin, ...]
    matrix: Matrix

    @property
    def minor(self) -> str:
        """The version people select by, e.g. ``2.2``."""
        return minor_of(self.tensorflow)

    @property
    def name(self) -> str:
        """The image's name in files, logs and reports, e.g. ``tf-2.2-cpu-debian``."""
        return f"tf-{self.minor}-{self.variant}-{self.stack}"

    @property
    def tags(self) -> tuple[str, ...]:
        """The references it gets when its suites have passed, the usual one first."""
        suffix = f"{self.variant}-{self.stack}"
        versions = (self.minor, self.tensorflow)
        return tuple(f"{self.repository}:{version}-{suffix}" for version in versions)

    @property
    def lock_name(self) -> str:
        """The lock is shared by all stacks with this TensorFlow, Python and variant."""
        python = ".".join(self.version_of("python").split(".")[:2])
        return f"tf-{self.tensorflow}-py{python}-{self.variant}.txt"

    @property
    def build_lock_name(self) -> str:
        """The lock of what builds source distributions for this Python."""
        return f"build-py{minor_of(self.version_of('python'))}.txt"

    @cached_property
    def _by_component(self) -> dict[str, ResolvedPin]:
        return {pin.component: pin for pin in self.pins}

    def pin(self, component: str) -> ResolvedPin:
        """Return one component's pin; KeyError if the image has no such component."""
        return self._by_component[component]

    def version_of(self, component: str) -> str:
        """Return one component's version; KeyError if the image has no such component."""
        return self.pin(component).version

    @property
    def os(self) -> OperatingSystem:
        """What the image stands on."""
        return self.matrix.operating_systems[self.os_name]

    @property
    def wheel(self) -> TensorFlow:
        """What is known of its TensorFlow wheel."""
        return self.matrix.tensorflow[self.tensorflow]

    @property
    def distribution(self) -> str:
        """The name under which the index has this TensorFlow in this variant."""
        return self.wheel.distribution[self.variant]

    @property
    def python(self) -> Python:
        """How its interpreter comes to be."""
        return self.matrix.python[self.version_of("python")]

    @property
    def mpi(self) -> Mpi:
        """Its MPI implementation."""
        return self.matrix.mpi[self.mpi_name]

    @property
    def mpi_name(self) -> str:
        """Its MPI's key in the matrix, e.g. ``openmpi-4.1.4``."""
        row = find_row(self.matrix, self.tensorflow, self.stack)
        pin = row.mpi or self.matrix.stacks[self.stack].pins.mpi
        if pin is None:
            raise KeyError(self.name)
        return pin.version

    @property
    def horovod(self) -> Horovod:
        """What is known of its Horovod release."""
        return self.matrix.horovod[self.version_of("horovod")]

    def source(self, name: str) -> Source:
        """Return a download of the matrix."""
        return self.matrix.sources[name]

    def as_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints of this image."""
        return {
            "name": self.name,
            "tensorflow": self.tensorflow,
            "variant": self.variant,
            "stack": self.stack,
            "tags": list(self.tags),
            "os": self.os_name,
            "mpi": self.mpi_name,
            "pins": {pin.component: pin.version for pin in self.pins},
        }


def minor_of(version: str) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def find_row(matrix: Matrix, tensorflow: str, stack: str) -> Row:
    """Return the row of a TensorFlow release on a stack; KeyError if there is none."""
    for row in matrix.images:
        if row.tensorflow == tensorflow and row.stack == stack:
            return row
    raise KeyError(f"{tensorflow} on {stack}")


def all_images(matrix: Matrix) -> tuple[Image, ...]:
    """Return every image of the matrix, in the order of the file."""
    return tuple(
        _resolve(matrix, row, variant) for row in matrix.images for variant in row.variants
    )


def _resolve(matrix: Matrix, row: Row, variant: Variant) -> Image:
    return Image(
        tensorflow=row.tensorflow,
        variant=variant,
        stack=row.stack,
        os_name=row.os or matrix.stacks[row.stack].os,
        repository=matrix.repository,
        pins=tuple(resolve_pins(matrix, row, variant)),
        matrix=matrix,
    )
