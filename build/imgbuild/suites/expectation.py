"""The facts that suites expect of an image, as JSON."""

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import pin_labels
from imgbuild.dockerfile.variables import nvidia_libraries
from imgbuild.locks.lockfile import locked_packages
from imgbuild.matrix.images import Image

#: The only MPI that Horovod's launcher supports: Horovod 0.16 to 0.20 reject Intel's mpirun.
LAUNCHED = "openmpi"


def known_facts(image: Image) -> dict[str, Any]:
    """Return the facts that decide which suites apply to an image."""
    return {
        "name": image.name,
        "tensorflow": image.tensorflow,
        "variant": image.variant,
        "mpi_flavour": image.mpi.flavour if image.horovod else None,
    }


def expectation(
    image: Image, project: Project, standin: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the image's pins, locked packages, labels and other expected facts.

    ``standin`` has the actual versions in an image built from stand-ins, by component or by the
    MPI's name in the matrix. It is None for any other image.

    InputError: the image's lock is missing or damaged.
    """
    true = standin or {}
    pins = {pin.component: true.get(pin.component, pin.version) for pin in image.pins}
    if image.horovod:
        pins["mpi"] = true.get(image.mpi_name, pins["mpi"])
    has_launcher = bool(image.horovod and image.horovod.launcher)
    # Images for amd64 do not state it, so that their stored results stay valid.
    platform = {} if image.architecture == "amd64" else {"platform": image.platform}
    return {
        **known_facts(image),
        "stack": image.stack,
        "pins": pins,
        "os_id": image.os.distribution,
        "horovodrun": has_launcher and image.mpi.flavour == LAUNCHED,
        "standin": standin is not None,
        "packages": locked_packages(image, project.locks),
        "held": _held_packages(image),
        "gpu": _gpu_facts(image),
        "labels": pin_labels(image),
        **platform,
    }


def _held_packages(image: Image) -> dict[str, str]:
    """Return the versions of NVIDIA's packages, which apt must not change."""
    if image.apt_cuda is None:
        return {}
    packages = (*image.apt_cuda.runtime, *nvidia_libraries(image))
    return dict(package.split("=", 1) for package in packages)


def _gpu_facts(image: Image) -> dict[str, str]:
    """Return the wheel's requirements for CUDA, driver and GPU; empty for a CPU image."""
    if image.cuda is None:
        return {}
    facts = {
        "cuda": image.wheel.cuda,
        "driver": image.cuda.driver,
        "newest": image.cuda.newest,
        "oldest": min(image.wheel.native, key=Version),
    }
    if image.index_cuda:
        facts["kernels"] = " ".join(image.index_cuda.kernels)
    return facts
