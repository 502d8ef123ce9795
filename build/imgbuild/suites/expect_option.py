"""Read ``--expect``: the versions that an external image must have.

Only these are asserted: a named version must be found, and any other package may be installed. How
the image is *used* (its TensorFlow's interface, how its MPI starts ranks, whether it has CUDA) is
an expectation too, or probed.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from imgbuild.errors import InputError
from imgbuild.matrix.images import Image, all_images, minor_of
from imgbuild.matrix.model import Matrix, Variant
from imgbuild.project import Project
from imgbuild.suites.expectation import LAUNCHED, expectation
from imgbuild.suites.image_probe import NOTHING, ImageContents

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
KINDS = {"mpi": "mpi_flavour", "os": "os_id"}
OTHERS = ("variant", "stack")

_VERSION = re.compile(r"\d+(\.\d+)*")
_KIND = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class ExpectOption:
    """The expectations of the command line by key, each value checked."""

    values: Mapping[str, str]

    @property
    def pins(self) -> dict[str, str]:
        """The versions that the image must have, by component."""
        found = {VERSIONS[key]: value for key, value in self.values.items() if key in VERSIONS}
        for key in KINDS:
            version = self.part(key)[1]
            if version:
                found[key] = version
        return found

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
        if not equals or key not in {*VERSIONS, *KINDS, *OTHERS}:
            raise InputError(f"--expect {pair!r}: give KEY=VALUE, with a key of: {_keys()}.")
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
    variant = _variant(option, contents)
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


def _variant(option: ExpectOption, contents: ImageContents) -> Variant:
    for variant in get_args(Variant):
        if option.values.get("variant") == variant:
            return variant  # type: ignore[no-any-return]
    return "gpu" if contents.cuda else "cpu"


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


def _keys() -> str:
    return ", ".join([*VERSIONS, *KINDS, *OTHERS])
