"""Resolve the pins of an image: from its row, else its stack, else its operating system."""

from dataclasses import dataclass

from imgbuild.core.yaml_file import Location
from imgbuild.matrix.evidence import Architecture
from imgbuild.matrix.model import DistributionKey, Matrix, Pin, Row, StackPins, Variant

INDEX = "Python package index"
#: The upstreams of NVIDIA's packages, by component.
NVIDIA = {
    "cuda": "nvidia-cuda",
    "cudnn": "nvidia-machine-learning",
    "nccl": "nvidia-machine-learning",
}


@dataclass(frozen=True)
class ResolvedPin:
    """One component of an image: its exact version, its source and the reason.

    ``documented`` is the version in the original documentation, if it differs.
    ``documented_exists`` is false if that version is not available for this image.
    """

    component: str
    version: str
    documented: str | None = None
    documented_exists: bool = True
    source: str = ""
    sha256: str | None = None
    why: str | None = None
    #: The pin as the matrix spells it, for example ``openmpi-4.1.4``; None if that is the version.
    key: str | None = None


def resolve_os(matrix: Matrix, row: Row) -> str:
    return row.os or matrix.stacks[row.stack].os


def _levels(matrix: Matrix, row: Row) -> tuple[StackPins, ...]:
    system = matrix.operating_systems[resolve_os(matrix, row)]
    return row, matrix.stacks[row.stack].pins, system.pins


def resolve_pin(matrix: Matrix, row: Row, component: str) -> Pin:
    """Return the pin that applies to a row; LookupError if nothing pins the component."""
    for level in _levels(matrix, row):
        pin: Pin | None = getattr(level, component, None)
        if pin is not None:
            return pin
    stack = f" or in stacks.{row.stack}.pins" if component in StackPins.model_fields else ""
    raise LookupError(f"pin {component!r} is missing; set it here{stack}")


def locate_pin(matrix: Matrix, row: Row, component: str) -> Location:
    """Return the location of the pin that applies to a row."""
    if component == "os" and row.os is None:
        return ("stacks", row.stack, "os")
    locations: tuple[Location, ...] = (
        ("images", matrix.images.index(row)),
        ("stacks", row.stack, "pins"),
        ("operating_systems", resolve_os(matrix, row), "pins"),
    )
    levels = zip(locations, _levels(matrix, row), strict=True)
    pinned = (place for place, level in levels if getattr(level, component, None) is not None)
    return (*next(pinned, locations[-1]), component)


def usual_mpi(matrix: Matrix, row: Row) -> str | None:
    """Return the MPI of the row's stack or operating system, which a row may override."""
    return next((level.mpi.version for level in _levels(matrix, row)[1:] if level.mpi), None)


def distribution_key(variant: Variant, architecture: Architecture) -> DistributionKey:
    """Return the key of an image's package in ``distribution`` of `TensorFlow`."""
    return variant if architecture == "amd64" else architecture


def resolve_pins(
    matrix: Matrix, row: Row, variant: Variant, architecture: Architecture = "amd64"
) -> tuple[ResolvedPin, ...]:
    """Return the pins of a row in one variant for one architecture, with their sources.

    LookupError: a pin or the distribution is missing. KeyError: a reference names no entry.
    """
    release, name = matrix.tensorflow[row.tensorflow], f"tensorflow.{row.tensorflow}"
    package = distribution_key(variant, architecture)
    if package not in release.distribution:
        raise LookupError(f"{name}.distribution has no {package} package; add one")
    if variant == "gpu" and release.cudnn is None:
        raise LookupError(
            f"{name}.cudnn is missing; set the cuDNN that its GPU wheel was compiled with"
        )
    pins = [
        ResolvedPin(
            "tensorflow", row.tensorflow, source=f"{INDEX}: {release.distribution[package]}"
        ),
        ResolvedPin("tensorboard", release.tensorboard, source=f"{INDEX}: tensorboard"),
    ]
    training = [] if row.without_horovod else ["mpi", "horovod"]
    components = ["python", *training, "git", "os"]
    if matrix.python[resolve_pin(matrix, row, "python").version].origin == "conda":
        components.append("miniconda")
    components += ["cuda", "cudnn", "nccl"] if variant == "gpu" else []
    return (*pins, *(_resolve_component(matrix, row, component) for component in components))


def _resolve_component(matrix: Matrix, row: Row, component: str) -> ResolvedPin:
    os = matrix.operating_systems[resolve_os(matrix, row)]
    archive = f"{os.distribution.capitalize()} {os.suite} archive"
    if component == "os":
        source, key = os.image or archive, resolve_os(matrix, row)
        return ResolvedPin(component, os.version, source=source, why=os.support, key=key)
    pin = resolve_pin(matrix, row, component)
    version, why = pin.version, pin.why
    if component == "cuda" and version not in matrix.cuda:
        raise KeyError(version)
    source, sha256 = _find_source(matrix, component, version) or (archive, None)
    if component in NVIDIA:
        url = matrix.upstream_urls.get(NVIDIA[component], "")
        source = f"{url}{os.nvidia}/x86_64"
        cuda = matrix.cuda.get(resolve_pin(matrix, row, "cuda").version)
        if cuda and cuda.origin == "index":
            package = {"cudnn": cuda.cudnn_package, "nccl": cuda.nccl_package}.get(component)
            source = f"{INDEX}: {package or ', '.join(cuda.runtime)} (images/locks)"
            why = why or f"licence: {cuda.licence}"
    if component == "mpi":
        mpi = matrix.mpi[version]
        version = mpi.version
        if mpi.origin == "index":
            why = why or f"licence: {mpi.licence}"
    return ResolvedPin(
        component,
        version,
        documented=pin.documented,
        documented_exists=pin.documented_exists,
        source=source,
        sha256=sha256,
        why=why,
        key=pin.version,
    )


def _find_source(matrix: Matrix, component: str, version: str) -> tuple[str, str | None] | None:
    """Return the source of a component, with the sha256 of a single file; None for apt packages."""
    file = f"miniconda-{version}" if component == "miniconda" else None
    if component == "horovod":
        return f"{INDEX}: horovod, source distribution", matrix.horovod[version].sha256
    if component == "python":
        python = matrix.python[version]
        if python.origin == "conda":
            return f"conda packages, {len(python.packages)} by URL (images/locks)", None
        file = python.source if python.origin == "source" else None
    if component == "mpi":
        mpi = matrix.mpi[version]
        if mpi.origin == "index":
            return f"{INDEX}: {mpi.runtime} (images/locks)", None
        file = None if mpi.origin == "apt" else mpi.source
    return (matrix.sources[file].url, matrix.sources[file].sha256) if file else None
