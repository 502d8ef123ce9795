"""What an image's tags say is read from the running image, and must be what was planned."""

from collections.abc import Callable, Sequence
from pathlib import Path

from imgbuild.engine.client import Engine
from imgbuild.engine.types import RunOptions
from imgbuild.errors import CheckFailedError
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Part, Tags
from imgbuild.matrix.tags import Parts, PlannedTags, joined, parts_of
from imgbuild.process import TIMED_OUT
from imgbuild.publishing.answers import NOTHING, Answers, answers_of, parts_read
from imgbuild.suites.container import CONTAINER_LABEL, label_of, require_docker_client, run_docker

#: It takes a third of a second; a machine under load is given time.
SECONDS = 120
PROGRAM = Path(__file__).with_name("image_program.py")
#: No network, and no driver where the engine would lend one to every container.
_OPTIONS = RunOptions(network="none", environment={"NVIDIA_VISIBLE_DEVICES": "void"})

#: Runs a command in a container, by its id, and returns what it printed.
Execute = Callable[[str, Sequence[str]], str]


def read_tags(
    image: Image, image_id: str, release: str, engine: Engine, execute: Execute
) -> PlannedTags:
    """Return the tags that the running image says, which are the planned ones.

    The image's lock must be held: its container carries the label of the image's test runs, so
    that what a kill leaves is removed with what they leave.

    Raises:
        CheckFailedError: it cannot be asked, or it says another thing; every part, planned and
            read.
        MachineError: the engine cannot start its container; there is no docker client.

    """
    read = parts_read(_ask(image, image_id, engine, execute), image)
    scheme = image.matrix.tags
    different = differences(parts_of(image), read, scheme)
    if different:
        raise CheckFailedError(
            f"{image.name} ({image_id}) is not what its tag says: {'; '.join(different)}. It was "
            "not published. Build it again; if it is right as it is, correct matrix.yaml."
        )
    said: Parts = {**read, "release": release}
    moving = dict.fromkeys(joined(entry, said) for entry in scheme.moving)
    return PlannedTags(joined(scheme.immutable, said), tuple(moving))


def differences(planned: Parts, read: Parts, scheme: Tags) -> list[str]:
    """Return, in words, the parts of any tag that were read otherwise than planned."""
    used: dict[Part, None] = dict.fromkeys(scheme.immutable)
    used |= dict.fromkeys(part for entry in scheme.moving for part in entry)
    return [
        f"{part}: planned {planned.get(part) or NOTHING}, read {read.get(part) or NOTHING}"
        for part in used
        if part != "release" and planned.get(part, "") != read.get(part, "")
    ]


def _ask(image: Image, image_id: str, engine: Engine, execute: Execute) -> Answers:
    container = engine.start(
        image_id,
        command=["sleep", "infinity"],
        labels={CONTAINER_LABEL: label_of(image.name)},
        options=_OPTIONS,
    )
    try:
        said = execute(container, ["python", "-c", PROGRAM.read_text(encoding="utf-8")])
    finally:
        engine.remove_container(container)
    try:
        return answers_of(said)
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
