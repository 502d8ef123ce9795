"""Read from the running image what its tags say, and compare it with the plan."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.engine.client import Engine
from imgbuild.engine.types import RunOptions
from imgbuild.errors import CheckFailedError
from imgbuild.matrix.images import Image, as_documented_image, minor_of, resolve_image
from imgbuild.matrix.model import Matrix, Part, Tags
from imgbuild.matrix.tags import (
    Parts,
    cuda_part,
    documented_part,
    parts_of,
    python_part,
    stack_part,
)
from imgbuild.process import TIMED_OUT
from imgbuild.suites.container import CONTAINER_LABEL, label_of, require_docker_client, run_docker

#: It takes a third of a second; a machine under load is given time.
SECONDS = 120
PROGRAM = Path(__file__).with_name("image_program.py")
#: No network, and no driver where the engine would lend one to every container.
_OPTIONS = RunOptions(network="none", environment={"NVIDIA_VISIBLE_DEVICES": "void"})

#: Runs a command in a container, by its id, and returns what it printed.
Execute = Callable[[str, Sequence[str]], str]
NOTHING = "nothing"
#: How each MPI says its version: "mpirun (Open MPI) 4.1.4"; "Intel(R) MPI Library for Linux* OS,
#: Version 2018 Update 3 Build …" until 2019, "… Version 2021.8 Build …" since.
_MPIRUN = {
    "openmpi": re.compile(r"\(Open MPI\) ([\d.]+)()"),
    "intelmpi": re.compile(r"Intel.*Version ([\d.]+)(?: Update (\d+))?"),
}


@dataclass(frozen=True)
class ImageContents:
    """What was found in a running image; see :mod:`imgbuild.publish.image_program`."""

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


def parse_contents(text: str) -> ImageContents:
    """Return what the program printed; ValueError if it is not that."""
    try:
        found: dict[str, Any] = json.loads(text)
        pairs = tuple((str(name), str(version)) for name, version in found["distributions"])
        system, version = found["os"]
        return ImageContents(
            pairs,
            found["built_with_cuda"],
            found["kernels"],
            str(found["python"]),
            str(found["mpirun"]),
            tuple(map(str, found["cuda"])),
            (str(system), str(version)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not what the program prints: {error}") from error


def parts_read(contents: ImageContents, image: Image) -> dict[Part, str]:
    """Return every part but the release, as the image itself says.

    ``image`` is the plan: it gives the words (a shorter version that means the same is spelled as
    planned), never the contents.
    """
    flavour, version = contents.mpi
    return {
        "tensorflow": contents.tensorflow,
        "minor": minor_of(contents.tensorflow),
        "variant": _variant(contents, image),
        "python": python_part(contents.python),
        "cuda": cuda_part(_cuda(contents, image)),
        "mpi": flavour + _spelled(version, image.mpi.version),
        "os": "".join(contents.os),
        "stack": stack_part(image, _stack(contents.os, image)),
        "flavour": "" if image.usual_mpi and flavour == image.mpi.flavour else flavour,
        "documented": _documented(contents, image),
    }


def _all(values: Iterable[str]) -> str:
    return " and ".join(values) or NOTHING


def _spelled(found: str, planned: str) -> str:
    """Return a version as it was planned, where the shorter of the two begins the longer.

    Intel MPI 2018.3.222 says 2018.3, and the pin CUDA 10.1 means 10.1.243.
    """
    pairs = zip(found.split("."), planned.split("."), strict=False)
    return planned if found and all(one == other for one, other in pairs) else found


def _variant(contents: ImageContents, image: Image) -> str:
    """Return what the framework is, with its distribution where that is the other variant's."""
    kinds = {True: "gpu", False: "cpu", None: NOTHING}
    built, kernels = kinds[contents.built_with_cuda], kinds[contents.kernels]
    if built != kernels:
        return f"{built} by its build_info.py but {kernels} by its library"
    names = _all(name for name, _ in contents.distributions if name != "horovod")
    known = {str(variant): name for variant, name in image.wheel.distribution.items()}
    return built if known.get(built) == names else f"{built} of {names}"


def _cuda(contents: ImageContents, image: Image) -> str | None:
    """Return the version as pins have it, with two numbers; all of them where there are more."""
    planned = image.version_of("cuda") if image.cuda else NOTHING
    found = (
        planned if _spelled(one, planned) == planned else minor_of(one) for one in contents.cuda
    )
    return _all(found) if contents.cuda else None


def _stack(system: tuple[str, str], image: Image) -> str:
    """Return the image's stack if that has images on such a system, else those that have."""
    found = [name for name in image.matrix.stacks if system in _systems(image.matrix, name)]
    return image.stack if image.stack in found else " or ".join(found) or NOTHING


def _systems(matrix: Matrix, stack: str) -> set[tuple[str, str]]:
    names = {row.os or matrix.stacks[stack].os for row in matrix.images if row.stack == stack}
    systems = (matrix.operating_systems[name] for name in names)
    return {(one.distribution, one.version) for one in systems}


def _documented(contents: ImageContents, image: Image) -> str:
    """Return which of the two the image is by those of the corrected pins that are read here."""
    other = _counterpart(image)
    horovod = _all(version for name, version in contents.distributions if name == "horovod")
    found = {"horovod": horovod, "python": contents.python, "mpi": contents.mpi[1]}
    if image.cuda:
        found["cuda"] = _all(contents.cuda)
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


def check_contents(image: Image, image_id: str, engine: Engine, execute: Execute) -> None:
    """Compare what the running image says with every part of its tags.

    The image's lock must be held: its container carries the label of the image's test runs, so
    that what a kill leaves is removed with theirs.

    Raises:
        CheckFailedError: it cannot be read, or differs; every part, planned and read.
        MachineError: the engine cannot start its container; there is no docker client.

    """
    read = parts_read(_read(image, image_id, engine, execute), image)
    different = differences(parts_of(image), read, image.matrix.tags)
    if different:
        raise CheckFailedError(
            f"{image.name} ({image_id}) is not what its tag says: {'; '.join(different)}. It was "
            "not published. Build it again; if it is right as it is, correct matrix.yaml."
        )


def differences(planned: Parts, read: Parts, scheme: Tags) -> list[str]:
    """Return, in words, the parts of any tag that were read otherwise than planned."""
    used: dict[Part, None] = dict.fromkeys(scheme.immutable)
    used |= dict.fromkeys(part for entry in scheme.moving for part in entry)
    return [
        f"{part}: planned {planned.get(part) or NOTHING}, read {read.get(part) or NOTHING}"
        for part in used
        if part != "release" and planned.get(part, "") != read.get(part, "")
    ]


def _read(image: Image, image_id: str, engine: Engine, execute: Execute) -> ImageContents:
    container = engine.start(
        image_id,
        command=["sleep", "infinity"],
        labels={CONTAINER_LABEL: label_of(image.name)},
        options=_OPTIONS,
    )
    try:
        printed = execute(container, ["python", "-c", PROGRAM.read_text(encoding="utf-8")])
    finally:
        engine.remove_container(container)
    try:
        return parse_contents(printed)
    except ValueError as error:
        raise CheckFailedError(
            f"{image.name} ({image_id}) does not say what is in it: {error}. It was not published."
        ) from error


def docker_exec(host: str | None) -> Execute:
    """Return what runs commands through the docker client, as the suites do: several at once.

    Raises:
        MachineError: there is no docker client on PATH.

    """
    require_docker_client()

    def execute(container: str, command: Sequence[str]) -> str:
        ran = run_docker(["exec", container, *command], host, SECONDS)
        if ran.code == TIMED_OUT:
            raise CheckFailedError(
                f"The image did not say in {SECONDS} s what is in it; nothing was published. Is "
                "the engine overloaded? Try again."
            )
        if ran.code:
            last = " ".join(ran.errors.split()[-40:])
            raise CheckFailedError(
                f"The image could not be asked what is in it (exit code {ran.code}): {last} "
                "Nothing was published."
            )
        return ran.output

    return execute
