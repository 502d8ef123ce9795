"""The pins of an image, each with its source: the row's, else its stack's, else its OS's."""

from dataclasses import dataclass

from imgbuild.matrix.model import Matrix, OperatingSystem, Pin, Row, Variant
from imgbuild.yaml_file import Location

INDEX = "Python package index"
#: The upstreams of NVIDIA's packages, by component.
NVIDIA = {
    "cuda": "nvidia-cuda",
    "cudnn": "nvidia-machine-learning",
    "nccl": "nvidia-machine-learning",
}


@dataclass(frozen=True)
class ResolvedPin:
    """One component of an image: its exact version, where it comes from, and why.

    ``documented`` is what the documentation of these images says where that is another version;
    ``documented_exists`` is false if it was never published.
    """

    component: str
    version: str
    source: str
    sha256: str | None = None
    documented: str | None = None
    documented_exists: bool = True
    why: str | None = None


def pin_of(matrix: Matrix, row: Row, component: str) -> Pin:
    """Return the pin that holds for a row; KeyError if nothing pins the component."""
    stack = matrix.stacks[row.stack]
    os = matrix.operating_systems[row.os or stack.os]
    for level in (row, stack.pins, os.pins):
        pin: Pin | None = getattr(level, component, None)
        if pin is not None:
            return pin
    raise KeyError(component)


def pin_location(matrix: Matrix, row: Row, component: str) -> Location:
    """Return where the pin that holds for a row is written."""
    stack = matrix.stacks[row.stack]
    if getattr(row, component, None) is not None:
        return ("images", matrix.images.index(row), component)
    if component == "os":
        return ("stacks", row.stack, "os")
    if getattr(stack.pins, component, None) is not None:
        return ("stacks", row.stack, "pins", component)
    return ("operating_systems", row.os or stack.os, "pins", component)


def usual_mpi(matrix: Matrix, row: Row) -> str | None:
    """Return the MPI of a row's stack or operating system: the row's own unless it names one."""
    stack = matrix.stacks[row.stack]
    pin = stack.pins.mpi or matrix.operating_systems[row.os or stack.os].pins.mpi
    return pin.version if pin else None


def documented_pin(pin: Pin) -> Pin:
    """Return the pin with the documented version in place of the corrected one, if it exists."""
    if pin.documented is None or not pin.documented_exists:
        return pin
    return pin.model_copy(update={"version": pin.documented, "documented": None, "why": None})


def resolve_pins(
    matrix: Matrix, row: Row, variant: Variant, *, documented: bool = False
) -> list[ResolvedPin]:
    """Return the row's pins with their sources; ``documented`` takes the documented versions."""
    return [
        _resolve(matrix, row, variant, component, documented)
        for component in _components(matrix, row, variant)
    ]


def _components(matrix: Matrix, row: Row, variant: Variant) -> list[str]:
    components = ["tensorflow", "tensorboard", "python", "mpi", "horovod", "git", "os"]
    if matrix.python[pin_of(matrix, row, "python").version].origin == "conda":
        components.append("miniconda")
    return [*components, "cuda", "cudnn", "nccl"] if variant == "gpu" else components


def _resolve(
    matrix: Matrix, row: Row, variant: Variant, component: str, documented: bool
) -> ResolvedPin:
    wheel = matrix.tensorflow[row.tensorflow]
    os = matrix.operating_systems[row.os or matrix.stacks[row.stack].os]
    archive = f"{os.distribution.capitalize()} {os.suite} archive"
    if component == "tensorflow":
        return ResolvedPin(component, row.tensorflow, f"{INDEX}: {wheel.distribution[variant]}")
    if component == "tensorboard":
        return ResolvedPin(component, wheel.tensorboard, f"{INDEX}: tensorboard")
    if component == "os":
        return ResolvedPin(component, os.version, os.image or archive, why=os.support)
    pin = pin_of(matrix, row, component)
    if documented:
        pin = documented_pin(pin)
    version, why = pin.version, pin.why
    if component == "mpi":
        mpi = matrix.mpi[pin.version]
        version = mpi.version
        if mpi.origin in {"index", "installer"}:
            why = why or f"licence: {mpi.licence}"
    packages = _nvidia(matrix, os, component) if component in NVIDIA else archive
    source, sha256 = _source(matrix, component, pin.version, packages)
    return ResolvedPin(
        component, version, source, sha256, pin.documented, pin.documented_exists, why
    )


def _nvidia(matrix: Matrix, os: OperatingSystem, component: str) -> str:
    """Return the folder of NVIDIA's repository that has the component for the system."""
    upstream = matrix.upstreams.get(NVIDIA[component])
    if upstream is None or upstream.url is None:
        return "NVIDIA's packages"
    return f"{upstream.url}{os.nvidia}/x86_64"


def _source(matrix: Matrix, component: str, version: str, packages: str) -> tuple[str, str | None]:
    """Return where a component comes from, and its sha256 if it is one file."""
    if component == "horovod":
        return f"{INDEX}: horovod, source distribution", matrix.horovod[version].sha256
    if component == "python":
        python = matrix.python[version]
        if python.origin == "conda":
            return f"conda packages, {len(python.packages)} by URL (images/locks)", None
        found = matrix.sources[python.source]
    elif component == "mpi":
        mpi = matrix.mpi[version]
        if mpi.origin == "index":
            return f"{INDEX}: {mpi.runtime} (images/locks)", None
        if mpi.origin == "apt":
            return packages, None
        found = matrix.sources[mpi.source]
    elif component == "miniconda":
        found = matrix.sources[f"miniconda-{version}"]
    else:
        return packages, None
    return found.url, found.sha256
