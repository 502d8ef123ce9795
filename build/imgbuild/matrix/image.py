"""One image of the family: a row of the matrix in one variant, with everything resolved."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from imgbuild.matrix.model import (
    Horovod,
    Matrix,
    Mpi,
    OperatingSystem,
    Pin,
    Python,
    Row,
    Source,
    TensorFlow,
    Variant,
)

INDEX = "Python package index"


@dataclass(frozen=True)
class ResolvedPin:
    """One component of an image: its exact version, where it comes from, and why."""

    component: str
    version: str
    source: str
    sha256: str | None = None
    documented: str | None = None
    why: str | None = None


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
        pins=tuple(_pins(matrix, row, variant)),
        matrix=matrix,
    )


def _pins(matrix: Matrix, row: Row, variant: Variant) -> list[ResolvedPin]:
    """Return the row's pins, its stack's where the row has none, with their sources."""
    stack = matrix.stacks[row.stack]
    os_name = row.os or stack.os
    os = matrix.operating_systems[os_name]
    archive = f"{os.distribution.capitalize()} {os.suite} archive"
    wheel = matrix.tensorflow[row.tensorflow]
    pins = [
        ResolvedPin("tensorflow", row.tensorflow, f"{INDEX}: {wheel.distribution[variant]}"),
        ResolvedPin("tensorboard", wheel.tensorboard, f"{INDEX}: tensorboard"),
        _python_pin(matrix, row.python or stack.pins.python),
        _mpi_pin(matrix, row.mpi or stack.pins.mpi, archive),
        _horovod_pin(matrix, row.horovod),
        _pin("git", row.git or stack.pins.git, archive),
        ResolvedPin("os", os.version, archive, why=os.support),
    ]
    if row.miniconda or stack.pins.miniconda:
        pins.append(_pin("miniconda", row.miniconda or stack.pins.miniconda, "Anaconda"))
    if variant == "gpu":
        gpu = ("cuda", "cudnn", "nccl")
        pins.extend(_pin(name, getattr(row, name), "NVIDIA's packages") for name in gpu)
    return pins


def _pin(component: str, pin: Pin | None, source: str, sha256: str | None = None) -> ResolvedPin:
    if pin is None:
        raise KeyError(component)
    return ResolvedPin(component, pin.version, source, sha256, pin.documented, pin.why)


def _python_pin(matrix: Matrix, pin: Pin | None) -> ResolvedPin:
    resolved = _pin("python", pin, "conda packages")
    python = matrix.python[resolved.version]
    if python.origin == "source":
        source = matrix.sources[python.source]
        return _pin("python", pin, source.url, source.sha256)
    return resolved


def _mpi_pin(matrix: Matrix, pin: Pin | None, archive: str) -> ResolvedPin:
    if pin is None:
        raise KeyError("mpi")
    mpi = matrix.mpi[pin.version]
    source, sha256 = archive, None
    if mpi.origin == "source":
        source, sha256 = matrix.sources[mpi.source].url, matrix.sources[mpi.source].sha256
    elif mpi.origin == "index":
        source = f"{INDEX}: {mpi.runtime}"
    return ResolvedPin("mpi", mpi.version, source, sha256, pin.documented, pin.why)


def _horovod_pin(matrix: Matrix, pin: Pin) -> ResolvedPin:
    source = f"{INDEX}: horovod, source distribution"
    return _pin("horovod", pin, source, matrix.horovod[pin.version].sha256)
