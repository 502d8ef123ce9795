"""The expectation of an image, as the JSON that the in-image suites read."""

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from imgbuild.dockerfile.labels import pin_labels
from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.matrix.images import Image
from imgbuild.project import Project

#: Horovod's launcher starts ranks through Open MPI's mpirun only: 0.16 to 0.20 refuse Intel's.
LAUNCHED = "openmpi"


def expectation(
    image: Image, project: Project, standin: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the image's pins, every locked package, and its labels.

    ``standin`` are the true versions in an image that is built from stand-ins, by component, or by
    the MPI's name in the matrix; ``None`` for any other image.

    Raises:
        InputError: the image's lock is missing or damaged.

    """
    lock = read_lock(project.locks / image.lock_name)
    return {
        "name": image.name,
        "tensorflow": image.tensorflow,
        "variant": image.variant,
        "stack": image.stack,
        "pins": _pins(image, standin or {}),
        "mpi_flavour": image.mpi.flavour,
        "os_id": image.os.distribution,
        "horovodrun": image.horovod.launcher and image.mpi.flavour == LAUNCHED,
        "standin": standin is not None,
        "packages": {**lock.versions, "horovod": image.version_of("horovod")},
        "held": _held(image),
        "gpu": _gpu(image),
        "labels": pin_labels(image),
    }


def _pins(image: Image, standin: Mapping[str, str]) -> dict[str, str]:
    """Return the version of each component that the image must have."""
    pins = {pin.component: standin.get(pin.component, pin.version) for pin in image.pins}
    return {**pins, "mpi": standin.get(image.mpi_name, pins["mpi"])}


def _held(image: Image) -> dict[str, str]:
    """Return the packages that apt must not move, with their versions; none for a CPU image."""
    if image.cuda is None:
        return {}
    pinned = dict(pin.split("=", 1) for pin in image.cuda.runtime)
    for name, component in (("libcudnn7", "cudnn"), ("libnccl2", "nccl")):
        pinned[name] = f"{image.version_of(component)}-1+cuda{image.version_of('cuda')}"
    return pinned


def _gpu(image: Image) -> dict[str, str]:
    """Return what the wheel needs of CUDA, driver and GPU; nothing for a CPU image."""
    if image.cuda is None:
        return {}
    return {
        "cuda": image.wheel.gpu.cuda,
        "driver": image.cuda.driver,
        "newest": image.cuda.newest,
        "oldest": min(image.wheel.gpu.native, key=Version),
    }
