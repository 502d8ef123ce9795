"""``imgbuild run``: print a training job as a Docker command or a file, or run it."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import typer
import typer.core

from imgbuild.cli.options import (
    PROJECT,
    echo,
    flag,
    info,
    load_matrix,
    option,
    prefer_own_platform,
    replace_found_checkout,
    seconds,
    select,
    split_names,
    takes_selection,
)
from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import ADOPTION_FILE, Project
from imgbuild.core.user_folders import cache_dir, state_dir
from imgbuild.matrix.selection import Selection, build_hint
from imgbuild.net.addresses import has_registry

if TYPE_CHECKING:
    from imgbuild.matrix.components import Flavour
    from imgbuild.matrix.images import Image
    from imgbuild.training.training_job import TrainingJob


JobFormat = Literal["docker", "compose", "mpijob", "tfjob", "slurm", "devcontainer"]

_EVERY: frozenset[str] = frozenset(get_args(JobFormat))
_KUBERNETES = {"mpijob", "tfjob"}
_ELSEWHERE = {*_KUBERNETES, "slurm"}
#: The formats that support an option; the other options work with every format.
_FORMATS = {
    "--exec": {"docker"},
    "--nodes": _EVERY - {"docker", "devcontainer"},
    "--ps": {"compose", "tfjob"},
    "-np": _EVERY - {"tfjob", "devcontainer"},
    "--user": _EVERY - _ELSEWHERE,
    "--shm-size": _EVERY - {"slurm"},
    "--time-limit": _EVERY - {"devcontainer"},
    "--port": {"docker", "devcontainer"},
    "--tensorboard": _EVERY - _ELSEWHERE,
    "a program": _EVERY - {"devcontainer"},
}


class ProgramCommand(typer.core.TyperCommand):
    """Keep the ``--`` before the program: click drops only the first ``--``, so add another."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - of a copy of click
        at = [*args, "--"].index("--")
        return super().parse_args(ctx, [*args[:at], "--", *args[at:]])


@takes_selection(without="everything images")
def run(
    ctx: typer.Context,
    selection: Selection,
    words: list[str] | None = typer.Argument(
        None,
        metavar="IMAGE -- COMMAND",
        help="Image by a name from `imgbuild list` or by its reference, then the program to run "
        "and its arguments. If the engine does not have the image, describe it with --gpu and "
        "--mpi.",
        show_default=False,
    ),
    form: JobFormat = option(
        "--format",
        "Output format. docker is a command line; the others are files for these tools.",
        default="docker",
    ),
    execute: bool = flag("--exec", "Run the job, and exit with the program's exit code."),
    ranks: int | None = option(
        "-np --ranks COUNT",
        "Number of ranks on all nodes together. Default: one per node.",
        min=1,
        max=4096,
    ),
    nodes: int = option(
        "--nodes COUNT",
        "Number of containers that train: the nodes, or the chief and its workers.",
        min=1,
        max=512,
        default=1,
    ),
    servers: int = option(
        "--ps COUNT",
        "Number of parameter servers. TF_CONFIG configures them.",
        min=0,
        max=512,
        default=0,
    ),
    code: str = option("--code DIR", "Folder of the program, mounted at /work.", default="."),
    mount: list[str] | None = option(
        "--mount MOUNT", "Additional mount: SOURCE:TARGET or SOURCE:TARGET:ro; repeatable."
    ),
    checkpoints: str | None = option(
        "--checkpoints VOLUME",
        "Volume (or ./FOLDER) that keeps checkpoints between runs, mounted at MODEL_DIR=/model.",
    ),
    env: list[str] | None = option(
        "--env NAME=VALUE", "Set a variable; NAME alone passes on its value. Repeatable."
    ),
    user: str | None = option(
        "--user USER", "User who runs the program: UID or UID:GID. Default: you."
    ),
    gpus: str | None = option(
        "--gpus GPUS",
        "GPUs to use: all, none, a number, or for example device=0,1. Default: all for GPU images.",
    ),
    shm_size: str | None = option(
        "--shm-size SIZE",
        "Size of shared memory, for example 2g. Default: 1g; more for 9 or more ranks per node.",
    ),
    time_limit: str | None = option(
        "--time-limit DURATION",
        "Stop the program after this time, for example 90s, 30m or 1h30m. A signal lets it save "
        "first.",
    ),
    ports: list[int] | None = option(
        "--port PORT",
        "Publish this port of the program on 127.0.0.1; repeatable.",
        min=1,
        max=65535,
    ),
    tensorboard: str | None = option(
        "--tensorboard DIR",
        "Show this folder of the container in TensorBoard while the program runs.",
    ),
    job: str = option(
        "--job NAME",
        "Name of the job and its container; --exec appends random characters.",
        default="train",
    ),
    checkout: Project = PROJECT,
) -> None:
    """Print the `docker run` command for a training job, or run it.

    The folder of the code is mounted at /work. The program runs there with your user id.

    Example: imgbuild run 2.2 -- python train.py
    """
    from imgbuild.training.training_job import TrainingJob

    words = words or []
    names = tuple(takewhile("--".__ne__, words))
    command = words[len(names) + 1 :]
    if len(names) > 1 and not command:
        program = names if selection != Selection() else names[1:]
        raise InputError(f"Write -- before the program: -- {' '.join(program)}")
    given: dict[str, object] = {
        "--exec": execute,
        "--nodes": nodes > 1,
        "--ps": servers,
        "-np": ranks,
        "--user": user,
        "--shm-size": shm_size,
        "--time-limit": time_limit,
        "--port": ports,
        "--tensorboard": tensorboard,
        "a program": command,
    }
    _check_format(form, given)
    selection = replace(selection, names=selection.names + names)
    if os.path.lexists(Path(code) / ADOPTION_FILE):
        checkout = replace_found_checkout(ctx, checkout)
    if selection == Selection() and (adopted := _find_adopted(code, checkout)):
        selection = replace(selection, names=(adopted,))
    reference, has_gpu, flavour, planned = _find_image(checkout, selection)
    if form in _ELSEWHERE:
        _require_registry(reference, form)
    has_tasks = servers or form == "tfjob"
    default_ranks = 1 if has_tasks else nodes
    count = ranks or default_ranks
    starts_ranks = count > 1 or form == "mpijob"
    if planned and starts_ranks:
        _require_mpi(planned)
    has_ssh = form in _KUBERNETES or (nodes > 1 and not has_tasks)
    owner = _choose_user(user, has_ssh=has_ssh)
    limit = seconds("--time-limit", time_limit)
    if gpus and not has_gpu:
        info(f"note: {reference} is not known as an image for GPUs. Others use no GPU.")
    default_gpus = "all" if has_gpu else None
    kernels = _make_kernel_folder() if has_gpu and form not in _ELSEWHERE else None
    training_job = TrainingJob.from_options(
        name=job,
        image=reference,
        command=command,
        mpi=flavour,
        ranks=count,
        nodes=nodes,
        servers=servers,
        gpus=gpus or default_gpus,
        kernels=kernels,
        user=owner,
        seconds=limit,
        code=code,
        mounts=mount or (),
        variables=env or (),
        checkpoints=checkpoints,
        shm_size=shm_size,
        tensorboard=tensorboard,
        ports=ports or (),
        has_program=form != "devcontainer",
    )
    if execute:
        code_of_program = _execute(training_job, planned, checkout)
        raise typer.Exit(code_of_program)
    text = _text(form, training_job, checkout)
    echo(text)


def _make_kernel_folder() -> Path | None:
    """Return the folder for code that the driver compiles, None if it cannot be made.

    It must be there before the container, because Docker would make it for root.
    """
    folder = cache_dir() / "cuda"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    return None


def _find_adopted(code: str, project: Project) -> str | None:
    """Return the image that `imgbuild adopt` made on this machine for the program's folder, if any.

    The file can have come with the repository, so its tag alone must not choose an image.

    InputError: there is a file, but the image was not made here, or the engine no longer has it.
    """
    from imgbuild.adopt.adoption import FILE, read_adoption, read_result
    from imgbuild.engine.client import open_engine

    adoption = read_adoption(Path(code))
    if adoption is None:
        return None
    tag, result = adoption.tag, read_result(Path(code))
    is_there = result.get("tag") == tag
    with suppress(MachineError), open_engine(project.settings.engine) as engine:
        stored = engine.inspect(tag)
        is_there = is_there and stored is not None and stored.id == result.get("image")
    if not is_there:
        raise InputError(
            f"{FILE} names the image {tag}, which was not made here for this folder, or has "
            "changed. Run `imgbuild adopt` in the folder first, or name an image."
        )
    info(f"{FILE}: using {tag}.")
    return tag


def _check_format(form: JobFormat, options: Mapping[str, object]) -> None:
    """Raise InputError if a given option is not supported by the format."""
    for option_name, value in options.items():
        formats = _FORMATS[option_name]
        if value and form not in formats:
            able = " or ".join(name for name in get_args(JobFormat) if name in formats)
            raise InputError(
                f"--format {form} does not support {option_name}. Use --format {able}."
            )


def _require_registry(reference: str, form: JobFormat) -> None:
    """Raise InputError for an image that other machines cannot pull."""
    if has_registry(reference):
        return
    raise InputError(
        f"--format {form}: other machines would pull {reference} from Docker Hub, where the name "
        "belongs to somebody else. Push the image first (`imgbuild push --to "
        "REGISTRY/REPOSITORY`), then give its name in the registry: REGISTRY/REPOSITORY:TAG."
    )


def _require_mpi(image: "Image") -> None:
    """Raise InputError for an image that cannot start ranks."""
    if image.horovod:
        return
    raise InputError(
        f"{image.name} has no MPI to start ranks with. Run one process, use TensorFlow's own "
        "tasks (--ps, --format tfjob), or choose an image with MPI (imgbuild list)."
    )


def _execute(job: "TrainingJob", planned: "Image | None", project: Project) -> int:
    """Run the job to its end; return the exit code of the program.

    ``planned`` is the job's image if it is in the matrix.
    """
    from imgbuild.core.process import find_program
    from imgbuild.engine.discovery import docker_client
    from imgbuild.net.signing import read_trust
    from imgbuild.training.docker_run import run_job

    settings = project.settings
    image = planned.name if planned else job.image
    client = docker_client(settings.engine.host)
    if find_program(client[0]) is None:
        raise MachineError(
            "--exec: there is no docker client on PATH. Install it (Debian: docker-cli)."
        )
    if planned or read_trust(settings):
        image_id = _check_image(job.image, planned, project)
        job = replace(job, image=image_id)  # run the checked image, even if its tag moves
    # The name is unique, so that the cleanup removes only containers of this run.
    random_end = secrets.token_hex(3)
    own = replace(job, name=f"{job.name}-{random_end}")
    return run_job(own, client, info, image)


def _check_image(reference: str, planned: "Image | None", project: Project) -> str:
    """Return the id of an image; raise unless this machine made it or the settings trust it."""
    from imgbuild.engine.client import open_engine
    from imgbuild.net.signing import require_trusted
    from imgbuild.suites.store import ReportStore

    settings = project.settings
    store = ReportStore(state_dir() / "reports")
    with open_engine(settings.engine) as engine:
        if planned:
            stored = engine.need(reference, build_hint(planned))  # docker itself would pull it
            store.require_own(stored.id, planned)
        else:
            stored = engine.need_or_pull(reference, info)
    made_here = store.was_made_here(stored.id)
    verified_by = store.verified_by(stored.id)
    require_trusted(
        stored.digests, reference, settings, made_here=made_here, verified_by=verified_by
    )
    return stored.id


def _text(form: JobFormat, job: "TrainingJob", project: Project) -> str:
    from imgbuild.engine.discovery import docker_client
    from imgbuild.training.batch_script import batch_text
    from imgbuild.training.compose_file import compose_text
    from imgbuild.training.devcontainer import devcontainer_text
    from imgbuild.training.docker_run import docker_script
    from imgbuild.training.kubeflow import mpijob_text, tfjob_text

    if form == "docker":
        client = docker_client(project.settings.engine.host)
        return docker_script(job, client)
    texts = {
        "compose": compose_text,
        "mpijob": mpijob_text,
        "tfjob": tfjob_text,
        "slurm": batch_text,
        "devcontainer": devcontainer_text,
    }
    text = texts[form](job)
    return text.rstrip()


def _find_image(
    project: Project, selection: Selection
) -> "tuple[str, bool, Flavour, Image | None]":
    """Return an image's reference, whether it is for GPUs, its MPI, and its image of the matrix."""
    own, others = split_names(project, selection)
    if not others:
        images = prefer_own_platform(select(project, own), project.settings)
        if len(images) > 1:
            names = ", ".join(image.name for image in images)
            raise InputError(f"`run` takes one image, but these are selected: {names}.")
        (image,) = images
        has_gpu = image.variant == "gpu"
        return image.tags[0], has_gpu, image.mpi.flavour, image
    if len(selection.names) > 1:
        raise InputError(f"`run` takes one image, not {len(selection.names)}.")
    (reference,) = others
    contents = Selection(names=others, cpu=selection.cpu, gpu=selection.gpu, mpi=selection.mpi)
    if selection != contents:
        raise InputError(
            f"{reference} is not in the matrix. Of the selection options, use only --cpu, --gpu "
            "and --mpi, to describe it."
        )
    if selection.mpi not in {None, "openmpi", "intelmpi"}:
        raise InputError(f"--mpi {selection.mpi!r} is not supported here. Use openmpi or intelmpi.")
    built_on = _find_by_label(project, reference)
    has_gpu = selection.gpu
    if built_on and not selection.cpu:
        has_gpu = has_gpu or built_on.variant == "gpu"
    flavour: Flavour = "openmpi"
    if built_on:
        flavour = built_on.mpi.flavour
    if selection.mpi:
        flavour = "intelmpi" if selection.mpi == "intelmpi" else "openmpi"
    return reference, has_gpu, flavour, None


def _find_by_label(project: Project, reference: str) -> "Image | None":
    """Return the image of the matrix that the label of an image in the engine names, if any."""
    from imgbuild.dockerfile.labels import NAME
    from imgbuild.engine.client import open_engine
    from imgbuild.matrix.images import all_images

    stored = None
    with suppress(MachineError), open_engine(project.settings.engine) as engine:
        stored = engine.inspect(reference)
    if stored is None:
        return None
    family = all_images(load_matrix(project))
    return next((image for image in family if image.name == stored.labels.get(NAME)), None)


def _choose_user(user: str | None, *, has_ssh: bool) -> str | None:
    """Return the user who runs the program, as UID:GID; None for root.

    The default is the caller, who then owns the files that the program writes. If ssh connects the
    nodes, the user is always the unprivileged MPI user, because ssh is configured only for this
    user.
    """
    if has_ssh:
        if user and user.split(":")[0] != "1000":
            raise InputError(
                f"--user {user}: ssh between nodes works only for the user 1000. Omit --user."
            )
        return "1000:1000"
    user = user or f"{os.getuid()}:{os.getgid()}"
    if user.split(":")[0] == "0":
        return None
    return user
