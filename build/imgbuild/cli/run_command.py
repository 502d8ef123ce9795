"""``imgbuild run``: a training as the command line of Docker, or as a file for other tools."""

import os
import secrets
from dataclasses import replace
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import typer.core

from imgbuild.addresses import has_registry
from imgbuild.cli.options import PROJECT, echo, flag, info, option, seconds, select, takes_selection
from imgbuild.errors import InputError, MachineError
from imgbuild.matrix.selection import Selection
from imgbuild.project import Project
from imgbuild.user_folders import state_dir

if TYPE_CHECKING:
    from imgbuild.matrix.components import Flavour
    from imgbuild.matrix.images import Image
    from imgbuild.training.training_job import TrainingJob


class JobFormat(StrEnum):
    DOCKER = "docker"
    COMPOSE = "compose"
    MPIJOB = "mpijob"
    TFJOB = "tfjob"
    SLURM = "slurm"
    DEVCONTAINER = "devcontainer"


_EVERY = frozenset(JobFormat)
_KUBERNETES = {JobFormat.MPIJOB, JobFormat.TFJOB}
_ELSEWHERE = {*_KUBERNETES, JobFormat.SLURM}
#: Who can express the options that not every format can.
_TAKEN_BY = {
    "--exec": {JobFormat.DOCKER},
    "--nodes": _EVERY - {JobFormat.DOCKER, JobFormat.DEVCONTAINER},
    "--ps": {JobFormat.COMPOSE, JobFormat.TFJOB},
    "-np": _EVERY - {JobFormat.TFJOB, JobFormat.DEVCONTAINER},
    "--user": _EVERY - _ELSEWHERE,
    "--shm-size": _EVERY - {JobFormat.SLURM},
    "--time-limit": _EVERY - {JobFormat.DEVCONTAINER},
    "--port": {JobFormat.DOCKER, JobFormat.DEVCONTAINER},
    "--tensorboard": _EVERY - _ELSEWHERE,
    "a program": _EVERY - {JobFormat.DEVCONTAINER},
}


class ProgramCommand(typer.core.TyperCommand):
    """Keep the ``--`` between the image and the program: click leaves out the first one alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - of a copy of click
        at = [*args, "--"].index("--")
        return super().parse_args(ctx, [*args[:at], "--", *args[at:]])


@takes_selection(without="everything images")
def run(
    selection: Selection,
    words: list[str] | None = typer.Argument(
        None,
        metavar="IMAGE -- COMMAND",
        help="The image by name, tag or alias, and the program to run, with its arguments.",
        show_default=False,
    ),
    image: str | None = option(
        "--image IMAGE", "Any other image; --gpu and --mpi say what is in it."
    ),
    form: JobFormat = option(
        "--format",
        "docker is a command line; the others are files for these tools.",
        default=JobFormat.DOCKER,
    ),
    execute: bool = flag("--exec", "Run it, to its end; exit with the code of the program."),
    ranks: int | None = option(
        "-np COUNT", "How many ranks to start. Default: one a node.", min=1, max=4096
    ),
    nodes: int = option(
        "--nodes COUNT",
        "Containers that train: nodes, or chief and workers.",
        min=1,
        max=512,
        default=1,
    ),
    servers: int = option(
        "--ps COUNT", "Parameter servers: TF_CONFIG tells each its part.", min=0, max=512, default=0
    ),
    code: str = option(
        "--code DIR", "The folder that the program is in; it is mounted at /work.", default="."
    ),
    mount: list[str] | None = option(
        "--mount MOUNT", "SOURCE:TARGET or SOURCE:TARGET:ro, also mounted; repeatable."
    ),
    checkpoints: str | None = option(
        "--checkpoints VOLUME",
        "A volume (or ./FOLDER) that is kept from run to run, at MODEL_DIR=/model.",
    ),
    env: list[str] | None = option(
        "--env NAME=VALUE", "A variable; NAME alone passes on its value. Repeatable."
    ),
    user: str | None = option("--user USER", "Who runs the program, as UID:GID. Default: you."),
    gpus: str | None = option(
        "--gpus GPUS", "all, none, a number, device=0,1. Default: all, for GPU images."
    ),
    shm_size: str | None = option(
        "--shm-size SIZE", "Shared memory, such as 2g. Default: 1g, more from 9 ranks on."
    ),
    time_limit: str | None = option(
        "--time-limit DURATION", "End it after 90s, 30m or 1h30m, so that it can save."
    ),
    ports: list[int] | None = option(
        "--port PORT",
        "Publish this port of the program on 127.0.0.1; repeatable.",
        min=1,
        max=65535,
    ),
    tensorboard: str | None = option(
        "--tensorboard DIR", "Show this folder of the container in TensorBoard meanwhile."
    ),
    job: str = option(
        "--job NAME",
        "The name of the job and its container; --exec adds a random end.",
        default="train",
    ),
    checkout: Project = PROJECT,
) -> None:
    """Print the `docker run` command for a training job, or run it.

    The folder of the code is mounted at /work, where the program starts as the user that you are.
    """
    from imgbuild.training import training_job as training

    names = (*takewhile("--".__ne__, words or ()),)
    command = (words or [])[len(names) + 1 :]
    selection = replace(selection, names=selection.names + names)
    container = (user, shm_size, time_limit, ports, tensorboard)
    values = (execute, nodes > 1, servers, ranks, *container, command)
    for (name, formats), value in zip(_TAKEN_BY.items(), values, strict=True):
        if value and form not in formats:
            able = " or ".join(one for one in JobFormat if one in formats)
            raise InputError(f"{name}: --format {form} cannot express it. Give --format {able}.")
    reference, gpu, flavour, known = _image(checkout, image, selection)
    if form in _ELSEWHERE and not has_registry(reference):
        raise InputError(
            f"--format {form}: other machines would look for {reference} on Docker Hub, where it "
            "is another's. Push it first (`imgbuild push --to REGISTRY/REPOSITORY`), then name it "
            "as it is there: --image REGISTRY/REPOSITORY:TAG."
        )
    tasks = servers or form == JobFormat.TFJOB
    count = ranks or (1 if tasks else nodes)
    if known and not known.horovod and (count > 1 or form == JobFormat.MPIJOB):
        raise InputError(
            f"{known.name} has no MPI to start ranks with: run one process, TensorFlow's own tasks "
            "(--ps, --format tfjob), or an image with MPI (imgbuild list)."
        )
    planned = training.TrainingJob(
        name=job,
        image=reference,
        command=tuple(command),
        code=Path(training.parse_folder(code, "--code")),
        mpi=flavour,
        gpus=None if gpus == "none" else gpus or ("all" if gpu else None),
        ranks=count,
        nodes=nodes,
        servers=servers,
        user=_user(user, form in _KUBERNETES or (nodes > 1 and not tasks)),
        shm_bytes=training.parse_size(shm_size)
        if shm_size
        else training.shared_memory(-(-count // nodes)),
        seconds=round(seconds("--time-limit", time_limit) or 0),
        further=tuple(map(training.parse_mount, mount or ())),
        overrides=tuple(map(training.parse_variable, env or ())),
        checkpoints=checkpoints and training.parse_source(checkpoints, "--checkpoints"),
        tensorboard=tensorboard,
        ports=tuple(ports or ()),
    )
    training.check_job(planned, runs=form != JobFormat.DEVCONTAINER)
    if form != JobFormat.DOCKER:
        echo(_file(form, planned))
        return
    from imgbuild.engine.client import open_engine
    from imgbuild.process import find_program
    from imgbuild.registry.signing import require_trusted, trust_of
    from imgbuild.suites.results import ReportStore
    from imgbuild.training.docker_run import docker_script, run_job

    settings = checkout.settings
    engine_settings = settings.engine
    host = engine_settings.host  # an engine that the settings do not name the client finds itself
    client = ("docker", "-H", host) if host else ("docker",)
    if not execute:
        echo(docker_script(planned, client))
        return
    if find_program(client[0]) is None:
        raise MachineError(
            "--exec: there is no docker client on PATH. Install one (Debian: docker-cli)."
        )
    if known or trust_of(settings):
        store = ReportStore(state_dir() / "reports")
        with open_engine(engine_settings) as engine:
            stored = engine.need(reference, known)  # Docker would look for it elsewhere
        if known:
            store.require_own(stored.id, known)
        made_here, verified_by = store.was_made_here(stored.id), store.verified_by(stored.id)
        require_trusted(
            stored.digests, reference, settings, made_here=made_here, verified_by=verified_by
        )
        planned = replace(planned, image=stored.id)  # what was checked, whatever the name means
    # A name of its own: what is removed at the end is this run's.
    own = replace(planned, name=f"{planned.name}-{secrets.token_hex(3)}")
    raise typer.Exit(run_job(own, client, info))


def _file(form: JobFormat, job: "TrainingJob") -> str:
    from imgbuild.training.batch_script import batch_text
    from imgbuild.training.compose_file import compose_text
    from imgbuild.training.devcontainer import devcontainer_text
    from imgbuild.training.kubeflow import mpijob_text, tfjob_text

    texts = {
        JobFormat.COMPOSE: compose_text,
        JobFormat.MPIJOB: mpijob_text,
        JobFormat.TFJOB: tfjob_text,
        JobFormat.SLURM: batch_text,
        JobFormat.DEVCONTAINER: devcontainer_text,
    }
    return texts[form](job).rstrip()


def _image(
    project: Project, reference: str | None, selection: Selection
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


def _user(user: str | None, several: bool) -> str | None:
    """Return who runs the program: the caller, who then owns what it writes; None for root.

    On several nodes it is MPI's plain user, whom ssh knows.
    """
    if several:
        if user and user.split(":")[0] != "1000":
            raise InputError(f"--user {user}: ssh between nodes knows the user 1000 alone.")
        return "1000:1000"
    user = user or f"{os.getuid()}:{os.getgid()}"
    return None if user.split(":")[0] == "0" else user
