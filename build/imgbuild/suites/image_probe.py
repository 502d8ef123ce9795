"""Read from a running image what is in it: TensorFlow, Python, MPI, CUDA, operating system."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.engine.types import RunOptions
from imgbuild.errors import CheckFailedError
from imgbuild.process import TIMED_OUT, run
from imgbuild.suites.container import CONTAINER_LABEL, label_of, require_docker_client

#: It takes a third of a second; a machine under load is given time.
SECONDS = 120
PROGRAM = Path(__file__).with_name("image_program.py")
#: No network, and no driver where the engine would lend one to every container.
_OPTIONS = RunOptions(network="none", environment={"NVIDIA_VISIBLE_DEVICES": "void"})
_PYTHON = 'exec "$(command -v python || command -v python3)" -c "$1"'

#: Runs a command in a container, by its id, and returns what it printed.
Execute = Callable[[str, Sequence[str]], str]
NOTHING = "nothing"
#: How each MPI says its version: "mpirun (Open MPI) 4.1.4"; "Intel(R) MPI Library for Linux* OS,
#: Version 2018 Update 3 Build …" until 2019, "… Version 2021.8 Build …" since.
_MPIRUN = {
    "openmpi": re.compile(r"\(Open MPI\) ([\d.]+)()"),
    "intelmpi": re.compile(r"Intel.*Version ([\d.]+)(?: Update (\d+))?"),
    "mpich": re.compile(r"HYDRA[^:]*:\s+Version:\s+([\d.]+)()"),
}


@dataclass(frozen=True)
class ImageContents:
    """What was found in a running image; see :mod:`imgbuild.suites.image_program`."""

    distributions: tuple[tuple[str, str], ...]
    built_with_cuda: bool | None
    kernels: bool | None
    python: str
    mpirun: str
    cuda: tuple[str, ...]
    os: tuple[str, str]
    horovodrun: bool = False

    @property
    def tensorflow_versions(self) -> tuple[str, ...]:
        """The versions of every TensorFlow that is installed."""
        return tuple(version for name, version in self.distributions if name != "horovod")

    @property
    def tensorflow(self) -> str:
        """The version of the one TensorFlow that is installed; all of them where there are more."""
        return joined_versions(self.tensorflow_versions)

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
    from pydantic import TypeAdapter  # noqa: PLC0415 - takes time to import

    return TypeAdapter(ImageContents).validate_json(text)


def joined_versions(values: Iterable[str]) -> str:
    """Return versions in words; ``nothing`` for none."""
    return " and ".join(values) or NOTHING


def read_contents(name: str, image_id: str, engine: Engine, execute: Execute) -> ImageContents:
    """Return what is in an image, from a container that is removed at once.

    The image's lock must be held: the container carries the label of the image's test runs, so
    that what a kill leaves is removed with theirs.

    Raises:
        CheckFailedError: the image cannot run the program.
        MachineError: the engine cannot start its container.

    """
    container = engine.start(
        image_id,
        command=["sleep", "infinity"],
        labels={CONTAINER_LABEL: label_of(name)},
        options=_OPTIONS,
    )
    program = PROGRAM.read_text(encoding="utf-8")
    try:
        printed = execute(container, ["sh", "-c", _PYTHON, "sh", program])
    finally:
        engine.remove_container(container)
    try:
        return parse_contents(printed)
    except ValueError:
        raise CheckFailedError(
            f"{name} ({image_id}) does not say what is in it; its program printed "
            f"{' '.join(printed.split())[:200]!r}."
        ) from None


def docker_exec(host: str | None) -> Execute:
    """Return what runs commands through the docker client, as the suites do: several at once.

    Raises:
        MachineError: there is no docker client on PATH.

    """
    require_docker_client()

    def execute(container: str, command: Sequence[str]) -> str:
        environment = {**os.environ, **({"DOCKER_HOST": host} if host else {})}
        words = ["docker", "exec", container, *command]
        ran = run(words, timeout=SECONDS, env=environment)
        if ran.code == TIMED_OUT:
            raise CheckFailedError(
                f"The image did not answer within {SECONDS} s what is in it. Is the engine "
                "overloaded? Try again."
            )
        if ran.code:
            last = " ".join(ran.errors.split()[-40:])
            raise CheckFailedError(
                f"The image cannot run a program that reads what is in it (exit code {ran.code}): "
                f"{last}"
            )
        return ran.output

    return execute
