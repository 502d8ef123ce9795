"""What a running image says of itself, and the parts of its tags that this makes. Pure."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from imgbuild.matrix.images import Image, as_documented_image, minor_of, resolve_image
from imgbuild.matrix.model import Matrix, Part
from imgbuild.matrix.tags import cuda_part, documented_part, python_part, stack_part

NOTHING = "nothing"
#: How each MPI says its version: "mpirun (Open MPI) 4.1.4"; "Intel(R) MPI Library for Linux* OS,
#: Version 2018 Update 3 Build …" until 2019, "… Version 2021.8 Build …" since.
_MPIRUN = {
    "openmpi": re.compile(r"\(Open MPI\) ([\d.]+)()"),
    "intelmpi": re.compile(r"Intel.*Version ([\d.]+)(?: Update (\d+))?"),
}


@dataclass(frozen=True)
class Answers:
    """What was found in the image, unjudged; see :mod:`imgbuild.publishing.image_program`."""

    distributions: tuple[tuple[str, str], ...]
    built_with_cuda: bool | None
    kernels: bool | None
    python: str
    mpirun: str
    cuda: tuple[str, ...]
    os: tuple[str, str]

    @property
    def tensorflow(self) -> str:
        """The version of the one TensorFlow that is installed; all of them where there are more."""
        return _all(version for name, version in self.distributions if name != "horovod")

    @property
    def mpi(self) -> tuple[str, str]:
        """Flavour and version of what ``mpirun`` is."""
        for flavour, words in _MPIRUN.items():
            match = words.search(self.mpirun)
            if match:
                return flavour, ".".join(filter(None, match.groups()))
        return NOTHING, ""


def answers_of(text: str) -> Answers:
    """Return what the program printed; ValueError if it is not that."""
    try:
        found: dict[str, Any] = json.loads(text)
        pairs = tuple((str(name), str(version)) for name, version in found["distributions"])
        system, version = found["os"]
        return Answers(
            pairs,
            found["built_with_cuda"],
            found["kernels"],
            str(found["python"]),
            str(found["mpirun"]),
            tuple(map(str, found["cuda"])),
            (str(system), str(version)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not what was asked: {error}") from error


def parts_read(answers: Answers, image: Image) -> dict[Part, str]:
    """Return every part but the release, as the image itself says.

    ``image`` is the plan: it gives the words (a shorter version that means the same is spelled as
    planned), never the answers.
    """
    flavour, version = answers.mpi
    return {
        "tensorflow": answers.tensorflow,
        "minor": minor_of(answers.tensorflow),
        "variant": _variant(answers, image),
        "python": python_part(answers.python),
        "cuda": cuda_part(_cuda(answers, image)),
        "mpi": flavour + _spelled(version, image.mpi.version),
        "os": "".join(answers.os),
        "stack": stack_part(image, _stack(answers.os, image)),
        "flavour": "" if image.usual_mpi and flavour == image.mpi.flavour else flavour,
        "documented": _documented(answers, image),
    }


def _all(values: Iterable[str]) -> str:
    return " and ".join(values) or NOTHING


def _spelled(found: str, planned: str) -> str:
    """Return a version as it was planned, where the shorter of the two begins the longer.

    Intel MPI 2018.3.222 says 2018.3, and the pin CUDA 10.1 means 10.1.243.
    """
    pairs = zip(found.split("."), planned.split("."), strict=False)
    return planned if found and all(one == other for one, other in pairs) else found


def _variant(answers: Answers, image: Image) -> str:
    """Return what the framework is, with its distribution where that is the other variant's."""
    kinds = {True: "gpu", False: "cpu", None: NOTHING}
    built, kernels = kinds[answers.built_with_cuda], kinds[answers.kernels]
    if built != kernels:
        return f"{built} by its build_info.py but {kernels} by its library"
    names = _all(name for name, _ in answers.distributions if name != "horovod")
    known = {str(variant): name for variant, name in image.wheel.distribution.items()}
    return built if known.get(built) == names else f"{built} of {names}"


def _cuda(answers: Answers, image: Image) -> str | None:
    """Return the version as pins have it, with two numbers; all of them where there are more."""
    planned = image.version_of("cuda") if image.cuda else NOTHING
    found = (
        planned if _spelled(one, planned) == planned else minor_of(one) for one in answers.cuda
    )
    return _all(found) if answers.cuda else None


def _stack(system: tuple[str, str], image: Image) -> str:
    """Return the image's stack if that has images on such a system, else those that have."""
    found = [name for name in image.matrix.stacks if system in _systems(image.matrix, name)]
    return image.stack if image.stack in found else " or ".join(found) or NOTHING


def _systems(matrix: Matrix, stack: str) -> set[tuple[str, str]]:
    names = {row.os or matrix.stacks[stack].os for row in matrix.images if row.stack == stack}
    systems = (matrix.operating_systems[name] for name in names)
    return {(one.distribution, one.version) for one in systems}


def _documented(answers: Answers, image: Image) -> str:
    """Return which of the two the image is by those of the corrected pins that are read here."""
    other = _counterpart(image)
    horovod = _all(version for name, version in answers.distributions if name == "horovod")
    found = {"horovod": horovod, "python": answers.python, "mpi": answers.mpi[1]}
    if image.cuda:
        found["cuda"] = _all(answers.cuda)
    told = {
        _whose(version, image.version_of(component), other.version_of(component))
        for component, version in found.items()
        if image.version_of(component) != other.version_of(component)
    }
    if len(told) > 1 or NOTHING in told:
        return "neither as documented nor as corrected"
    return documented_part(documented=other.documented if "other" in told else image.documented)


def _whose(found: str, own: str, other: str) -> str:
    pins = {"own": own, "other": other}
    return next((name for name, pin in pins.items() if _spelled(found, pin) == pin), NOTHING)


def _counterpart(image: Image) -> Image:
    if image.documented:
        return resolve_image(image.matrix, image.row, image.variant)
    return as_documented_image(image)
