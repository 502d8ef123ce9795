"""What an image must have, as the JSON that the in-image suites read.

Of an external image only what ``--expect`` names is asserted, beside how it is used: its
TensorFlow's interface, how its MPI starts ranks, whether it has CUDA.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from packaging.version import Version

from imgbuild.dockerfile.labels import pin_labels
from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image, all_images, minor_of
from imgbuild.matrix.model import Matrix, Variant
from imgbuild.project import Project
from imgbuild.suites.image_probe import NOTHING, ImageContents

#: Horovod's launcher starts ranks through Open MPI's mpirun only: 0.16 to 0.20 refuse Intel's.
LAUNCHED = "openmpi"
#: The keys for versions, and the components that they are the pins of.
VERSIONS = {
    "tf": "tensorflow",
    "python": "python",
    "tensorboard": "tensorboard",
    "horovod": "horovod",
    "git": "git",
    "cuda": "cuda",
    "cudnn": "cudnn",
    "nccl": "nccl",
    "miniconda": "miniconda",
}
#: The keys for a kind, a version, or both: ``openmpi``, ``4.1.4``, ``openmpi-4.1.4``.
KINDS = ("mpi", "os")
OTHERS = ("variant", "stack")

_VERSION = re.compile(r"\d+(\.\d+)*")
_KIND = re.compile(r"[a-z]+")


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


@dataclass(frozen=True)
class ExpectOption:
    """The expectations of the command line by key, each value checked."""

    values: Mapping[str, str]

    @property
    def pins(self) -> dict[str, str]:
        """The versions that the image must have, by component."""
        versions = {name: self.values.get(key) for key, name in VERSIONS.items()}
        versions |= {key: self.part(key)[1] for key in KINDS}
        return {component: version for component, version in versions.items() if version}

    def part(self, key: str) -> tuple[str | None, str | None]:
        """Return kind and version of a key of ``KINDS``."""
        return _split(self.values.get(key, ""))


def parse_expect(texts: Iterable[str], matrix: Matrix) -> ExpectOption:
    """Parse ``--expect KEY=VALUE,…``.

    Raises:
        InputError: a key is unknown or there twice, or a value is wrong; the known ones are listed.

    """
    values: dict[str, str] = {}
    for pair in (pair.strip() for text in texts for pair in text.split(",")):
        key, equals, value = pair.partition("=")
        keys = (*VERSIONS, *KINDS, *OTHERS)
        if not equals or key not in keys:
            raise InputError(
                f"--expect {pair!r}: give KEY=VALUE, with a key of: {', '.join(keys)}."
            )
        if key in values:
            raise InputError(f"--expect: {key} is given twice, as {values[key]} and as {value}.")
        _check(key, value, matrix)
        values[key] = value
    return ExpectOption(values)


def expected_of(
    option: ExpectOption, reference: str, contents: ImageContents, matrix: Matrix, project: Project
) -> tuple[Variant, dict[str, Any]]:
    """Return the variant, and what the suites read: the option, and how to use the image.

    Raises:
        InputError: the suites do not know the TensorFlow, or it cannot be found.

    """
    tensorflow = option.values.get("tf") or next(iter(contents.tensorflow_versions), None)
    variant: Variant = "gpu" if contents.cuda else "cpu"
    if named := option.values.get("variant"):
        variant = "gpu" if named == "gpu" else "cpu"
    family = _family(tensorflow, variant, reference, matrix)
    flavour = option.part("mpi")[0] or contents.mpi[0]
    known = {
        "mpi_flavour": flavour if flavour != NOTHING else None,
        "os_id": option.part("os")[0],
        "stack": option.values.get("stack"),
    }
    return variant, {
        "partial": True,
        "name": reference,
        "tensorflow": tensorflow,
        "variant": variant,
        "pins": option.pins,
        "horovodrun": flavour == LAUNCHED and contents.horovodrun,
        "gpu": expectation(family, project)["gpu"],
        **{key: value for key, value in known.items() if value},
    }


def unspecified(expected: Mapping[str, Any], matrix: Matrix, project: Project) -> tuple[str, ...]:
    """Return the facts and pins that an image of the matrix has and ``expected`` lacks."""
    whole = expectation(all_images(matrix)[0], project)
    facts = [key for key in whole if key not in expected]
    components = [key for key in whole["pins"] if key not in expected["pins"]]
    return (*facts, *(f"pin {component}" for component in components))


def _family(tensorflow: str | None, variant: Variant, reference: str, matrix: Matrix) -> Image:
    """Return an image of the matrix with the same TensorFlow, by which the suites know it."""
    images = [image for image in all_images(matrix) if image.variant == variant]
    minors = list(dict.fromkeys(image.minor for image in images))
    if tensorflow is None:
        raise InputError(
            f"No TensorFlow was found in {reference}; say which one it must have: --expect tf=…, "
            f"one of {', '.join(minors)}."
        )
    for image in images:
        if image.minor == minor_of(tensorflow):
            return image
    raise InputError(
        f"{reference} is to have TensorFlow {tensorflow}; the suites know {', '.join(minors)}."
    )


def _check(key: str, value: str, matrix: Matrix) -> None:
    stacks, variants = tuple(matrix.stacks), get_args(Variant)
    flavours = sorted({mpi.flavour for mpi in matrix.mpi.values()})
    kind = _split(value)[0]
    faults = {
        "variant": value not in variants and f"is one of {', '.join(variants)}",
        "stack": value not in stacks and f"is one of {', '.join(stacks)}",
        "mpi": (not any(_split(value)) or (kind and kind not in flavours))
        and f"is one of {', '.join(flavours)}, a version, or both: {flavours[-1]}-4.1.4",
        "os": not any(_split(value)) and "is a name, a version, or both: ubuntu-18.04",
    }
    fault = faults.get(key, not _VERSION.fullmatch(value) and "is a version such as 2.2")
    if fault:
        raise InputError(f"--expect {key}={value}: {key} {fault}.")


def _split(value: str) -> tuple[str | None, str | None]:
    """Return kind and version of ``openmpi-4.1.4``; ``None`` for a part that is absent or wrong."""
    if _VERSION.fullmatch(value):
        return None, value
    kind, dash, version = value.partition("-")
    if not _KIND.fullmatch(kind) or (dash and not _VERSION.fullmatch(version)):
        return None, None
    return kind, version or None
