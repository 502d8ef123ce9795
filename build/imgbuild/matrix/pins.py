"""The pins of an image: the row's, its stack's where the row has none, each with its source."""

from dataclasses import dataclass

from imgbuild.matrix.model import Matrix, Pin, Row, Variant

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


def resolve_pins(matrix: Matrix, row: Row, variant: Variant) -> list[ResolvedPin]:
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
