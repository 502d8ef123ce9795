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
from imgbuild.dockerfile.lockfile import locked_packages
from imgbuild.dockerfile.variables import nvidia_libraries
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image, all_images, minor_of
from imgbuild.matrix.model import Matrix, Variant
from imgbuild.project import Project
from imgbuild.suites.container import NOTHING, ImageContents, TestTarget

#: Horovod's launcher starts ranks through Open MPI's mpirun only: 0.16 to 0.20 refuse Intel's.
LAUNCHED = "openmpi"
#: The keys of ``--expect`` for versions, which are components but for TensorFlow's short name.
VERSIONS = ("tf", "python", "tensorboard", "horovod", "git", "cuda", "cudnn", "nccl", "miniconda")
#: Perhaps with a local part, as of a release that is patched: 0.28.1+imgbuild.1.
_VERSION = r"\d+(?:\.\d+)*(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?"


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


@dataclass(frozen=True)
class ExpectOption:
    """What ``--expect`` says: versions by component, and the kind of MPI, system and so on."""

    matrix: Matrix
    pins: Mapping[str, str]
    kinds: Mapping[str, str]


def parse_expect(texts: Iterable[str], matrix: Matrix) -> ExpectOption:
    """Parse ``--expect KEY=VALUE,…``; InputError for a wrong value, an unknown or repeated key."""
    forms = _forms(matrix)
    values: dict[str, str] = {}
    pins: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for pair in (pair.strip() for text in texts for pair in text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or key not in forms:
            raise InputError(
                f"--expect {pair!r}: give KEY=VALUE, with a key of: {', '.join(forms)}."
            )
        if key in values:
            raise InputError(f"--expect: {key} is given twice, as {values[key]} and as {value}.")
        values[key] = value
        form, meaning = forms[key]
        found = re.fullmatch(form, value)
        if found is None:
            raise InputError(f"--expect {key}={value}: {key} is {meaning}.")
        groups = found.groupdict()
        if version := groups.get("version") or groups.get("alone"):
            pins["tensorflow" if key == "tf" else key] = version
        if kind := groups.get("kind"):
            kinds[key] = kind
    return ExpectOption(matrix, pins, kinds)


def _forms(matrix: Matrix) -> dict[str, tuple[str, str]]:
    """Return, by key of ``--expect``, the form of its value and how to describe that."""
    flavours = sorted({mpi.flavour for mpi in matrix.mpi.values()})
    either = rf"(?P<kind>%s)(?:-(?P<version>{_VERSION}))?|(?P<alone>{_VERSION})"
    mpi = f"one of {', '.join(flavours)}, a version, or both: {flavours[-1]}-4.1.4"
    words = {"variant": get_args(Variant), "stack": matrix.stacks}
    return {
        **dict.fromkeys(VERSIONS, (f"(?P<version>{_VERSION})", "a version such as 2.2")),
        "mpi": (either % "|".join(flavours), mpi),
        "os": (either % "[a-z]+", "a name, a version, or both: ubuntu-18.04"),
        **{k: (f"(?P<kind>{'|'.join(w)})", f"one of {', '.join(w)}") for k, w in words.items()},
    }


def external_target(
    option: ExpectOption, reference: str, image_id: str, contents: ImageContents, project: Project
) -> TestTarget:
    """Return an external image as what is tested: against the option, and used as it must be.

    InputError: the suites do not know the TensorFlow, or it cannot be found.
    """
    tensorflow = option.pins.get("tensorflow") or next(iter(contents.tensorflow_versions), None)
    seen = "gpu" if contents.cuda else "cpu"
    variant: Variant = "gpu" if option.kinds.get("variant", seen) == "gpu" else "cpu"
    family = _family(tensorflow, variant, reference, option.matrix)
    flavour = option.kinds.get("mpi", contents.mpi[0])
    known = {
        "mpi_flavour": None if flavour == NOTHING else flavour,
        "os_id": option.kinds.get("os"),
        "stack": option.kinds.get("stack"),
    }
    expected = {
        "partial": True,
        "name": reference,
        "tensorflow": tensorflow,
        "variant": variant,
        "pins": option.pins,
        "horovodrun": flavour == LAUNCHED and contents.horovodrun,
        "gpu": _gpu(family),
        **{key: value for key, value in known.items() if value},
    }
    whole = expectation(family, project)
    facts = [key for key in whole if key not in expected]
    components = [f"pin {name}" for name in whole["pins"] if name not in option.pins]
    unspecified = (*facts, *components)
    return TestTarget(reference, image_id, reference, variant, expected, unspecified)


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
