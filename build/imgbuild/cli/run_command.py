"""``imgbuild run``: a training as the command line of Docker, or as a file for other tools."""

import os
import secrets
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import echo, info, option, select, takes_selection
from imgbuild.errors import InputError
from imgbuild.matrix.selection import Selection
from imgbuild.text import parse_duration

if TYPE_CHECKING:
    from imgbuild.matrix.images import Image
    from imgbuild.matrix.model import Flavour
    from imgbuild.project import Project


class JobFormat(StrEnum):
    DOCKER = "docker"


@takes_selection(without="everything")
def run(
    selection: Selection,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The program to run, with its arguments."),
    ] = None,
    image: Annotated[
        str | None,
        option("--image IMAGE", "Any other image; --gpu and --mpi say what is in it."),
    ] = None,
    execute: Annotated[
        bool, option("--exec", "Run it, to its end; exit with the code of the program.")
    ] = False,
    ranks: Annotated[int, option("-np COUNT", "How many ranks to start.", min=1, max=4096)] = 1,
    code: Annotated[
        str, option("--code DIR", "The folder that the program is in; it is mounted at /work.")
    ] = ".",
    mount: Annotated[
        list[str] | None,
        option("--mount MOUNT", "SOURCE:TARGET or SOURCE:TARGET:ro, also mounted; repeatable."),
    ] = None,
    checkpoints: Annotated[
        str | None,
        option(
            "--checkpoints VOLUME",
            "A volume (or ./FOLDER) that is kept from run to run, at MODEL_DIR=/model.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        option("--env NAME=VALUE", "A variable; NAME alone hands it on. Repeatable."),
    ] = None,
    user: Annotated[
        str | None, option("--user USER", "Who runs the program, as UID:GID. Default: you.")
    ] = None,
    gpus: Annotated[
        str | None,
        option("--gpus GPUS", "all, none, a number, device=0,1. Default: all, for GPU images."),
    ] = None,
    shm_size: Annotated[
        str | None,
        option("--shm-size SIZE", "Shared memory, such as 2g. Default: 1g, more from 9 ranks on."),
    ] = None,
    time_limit: Annotated[
        str | None,
        option("--time-limit DURATION", "End it after 90s, 30m or 1h30m, so that it can save."),
    ] = None,
    tensorboard: Annotated[
        str | None,
        option("--tensorboard DIR", "Show this folder of the container in TensorBoard meanwhile."),
    ] = None,
    job: Annotated[str, option("--job NAME", "The name of its container.")] = "train",
    project: options.ProjectOption = None,
) -> None:
    """Print the `docker run` of a training, or run it.

    The folder of the code is mounted at /work, where the program starts as the user that you are.
    """
    from imgbuild.training import training_job as training
    from imgbuild.training.docker_run import docker_script, run_job

    opened = options.open_project(project)
    reference, gpu, flavour, known = _image(opened, image, selection)
    shm = training.parse_size(shm_size) if shm_size else training.shared_memory(ranks)
    planned = training.TrainingJob(
        name=job,
        image=reference,
        command=tuple(command or ()),
        code=Path(training.parse_folder(code, "--code")),
        mpi=flavour,
        gpus=None if gpus == "none" else gpus or ("all" if gpu else None),
        ranks=ranks,
        user=_user(user),
        shm_bytes=shm,
        seconds=_seconds(time_limit),
        further=tuple(map(training.parse_mount, mount or ())),
        given=tuple(map(training.parse_variable, env or ())),
        checkpoints=checkpoints and training.parse_source(checkpoints, "--checkpoints"),
        tensorboard=tensorboard,
    )
    training.check_job(planned)
    client = _client(opened)
    if not execute:
        echo(docker_script(planned, client))
        return
    if known:
        _require_built(opened, known)
    # A name of its own: what is removed at the end is this run's.
    own = replace(planned, name=f"{planned.name}-{secrets.token_hex(3)}")
    raise typer.Exit(run_job(own, client, info))


def _image(
    project: "Project", reference: str | None, selection: Selection
) -> "tuple[str, bool, Flavour, Image | None]":
    """Return the image's reference, whether it is for GPUs, its MPI; and it, if the matrix's."""
    if reference is None:
        images = select(project, selection)
        if len(images) > 1:
            names = ", ".join(image.name for image in images)
            raise InputError(f"`run` takes one image, and these are selected: {names}.")
        (image,) = images
        return image.tags[0], image.variant == "gpu", image.mpi.flavour, image
    if selection != Selection(cpu=selection.cpu, gpu=selection.gpu, mpi=selection.mpi):
        raise InputError(
            f"--image {reference}: of the selection options only --cpu, --gpu and --mpi can say "
            "what is in it."
        )
    if selection.mpi not in {None, "openmpi", "intelmpi"}:
        raise InputError(f"--mpi {selection.mpi!r}: there is none; give openmpi or intelmpi.")
    return reference, selection.gpu, "intelmpi" if selection.mpi == "intelmpi" else "openmpi", None


def _user(given: str | None) -> str | None:
    """Return who runs the program: the caller, who then owns what it writes; None for root."""
    user = given or f"{os.getuid()}:{os.getgid()}"
    return None if user.split(":")[0] == "0" else user


def _seconds(duration: str | None) -> int:
    try:
        return round(parse_duration(duration or "0"))
    except ValueError as error:
        raise InputError(f"--time-limit: {error}.") from error


def _client(project: "Project") -> tuple[str, ...]:
    """Return the Docker client; the engine of the settings is named, others it finds itself."""
    from imgbuild.settings import load_settings

    host = load_settings(project.settings).engine.host
    return ("docker", "-H", host) if host else ("docker",)


def _require_built(project: "Project", image: "Image") -> None:
    """Raise for an image that was not built: Docker would look for it elsewhere."""
    from imgbuild.cli.test_command import stored_id
    from imgbuild.engine.client import Engine
    from imgbuild.engine.discovery import resolve_host
    from imgbuild.settings import load_settings
    from imgbuild.suites.container import require_docker_client

    require_docker_client()
    with closing(Engine(resolve_host(load_settings(project.settings).engine))) as engine:
        stored_id(engine, image.tags[0], image)
