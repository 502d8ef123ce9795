"""The facts that an image must have, as JSON for the in-image suites."""

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from imgbuild.dockerfile.labels import pin_labels
from imgbuild.dockerfile.lockfile import locked_packages
from imgbuild.dockerfile.variables import nvidia_libraries
from imgbuild.matrix.images import Image
from imgbuild.project import Project

#: Horovod's launcher starts ranks through Open MPI's mpirun only: 0.16 to 0.20 refuse Intel's.
LAUNCHED = "openmpi"


def known_facts(image: Image) -> dict[str, Any]:
    """Return the facts of an image that say which suites are for it."""
    return {
        "name": image.name,
        "tensorflow": image.tensorflow,
        "variant": image.variant,
        "mpi_flavour": image.mpi.flavour if image.horovod else None,
    }


def expectation(
    image: Image, project: Project, standin: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the image's pins, every locked package, and its labels.

    ``standin`` are the true versions in an image that is built from stand-ins, by component, or by
    the MPI's name in the matrix; ``None`` for any other image. It is an InputError if the image's
    lock is missing or damaged.
    """
    true = standin or {}
    pins = {pin.component: true.get(pin.component, pin.version) for pin in image.pins}
    if image.horovod:
        pins["mpi"] = true.get(image.mpi_name, pins["mpi"])
    return {
        **known_facts(image),
        "stack": image.stack,
        "pins": pins,
        "os_id": image.os.distribution,
        "horovodrun": bool(image.horovod and image.horovod.launcher)
        and image.mpi.flavour == LAUNCHED,
        "standin": standin is not None,
        "packages": locked_packages(image, project.locks),
        "held": _held(image),
        "gpu": _gpu(image),
        "labels": pin_labels(image),
    }


def _held(image: Image) -> dict[str, str]:
    """Return the packages that apt must not move, with their versions: those of NVIDIA's."""
    if image.apt_cuda is None:
        return {}
    return dict(one.split("=", 1) for one in (*image.apt_cuda.runtime, *nvidia_libraries(image)))


def _gpu(image: Image) -> dict[str, str]:
    """Return what the wheel needs of CUDA, driver and GPU; nothing for a CPU image."""
    if image.cuda is None:
        return {}
    return {
        "cuda": image.wheel.cuda,
        "driver": image.cuda.driver,
        "newest": image.cuda.newest,
        "oldest": min(image.wheel.native, key=Version),
        **({"kernels": " ".join(image.index_cuda.kernels)} if image.index_cuda else {}),
    }
