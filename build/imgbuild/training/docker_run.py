"""A training job as ``docker run``: the command lines, and running them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain

from imgbuild.core.errors import MachineError
from imgbuild.core.process import Finished, run, start
from imgbuild.training.training_job import (
    MODEL,
    SAVE_SECONDS,
    TENSORBOARD_PORT,
    WORK,
    Mount,
    TrainingJob,
    docker_size,
    shell_command,
)

#: One line of a printed command: an option with its value, or a program with its arguments.
Line = tuple[str, ...]
Lines = tuple[Line, ...]
#: Seconds that the engine may take to start TensorBoard's container, or to remove one.
_ENGINE_SECONDS = 60
#: The file descriptors of this process: what the job says is not read here.
_OUTPUT, _ERRORS = 1, 2


def docker_script(job: TrainingJob, client: Line) -> str:
    """Return the command lines that run a job, for a shell.

    ``client`` is the Docker client, with what names its engine.
    """
    commands = [_training_command(job, client)]
    if job.tensorboard:
        name, *rest = _board_command(job, client)
        board = ((*name, "--detach"), *rest)
        port = _port_command(job, client)
        stop = (*client, "stop", _board_name(job))
        commands = [board, (port,), *commands, (stop,)]
    if chown := chown_command(job, client):
        commands.insert(0, (chown,))
    return "\n".join(map(shell_command, commands))


def run_job(job: TrainingJob, client: Line, log: Callable[[str], None]) -> int:
    """Run a job to its end, TensorBoard beside it; return its exit code.

    However the block is left, both containers have ended then. Their clients hand a signal on; what
    does not end by it is removed.

    MachineError: the engine cannot start TensorBoard, or cannot prepare the volume.
    """
    if chown := chown_command(job, client):
        answer = run(chown, timeout=_ENGINE_SECONDS)
        _require(answer, "the volume cannot be prepared")
    with ExitStack() as stack:
        begin = partial(start, leader_first=True, grace=SAVE_SECONDS + _ENGINE_SECONDS)
        if job.tensorboard:
            stack.callback(_remove_container, client, _board_name(job))
            board = chain(*_board_command(job, client))
            stack.enter_context(begin([*board], output=_ERRORS, errors=_ERRORS))
            address = _board_address(job, client)
            log(f"TensorBoard: http://{address}/")
        stack.callback(_remove_container, client, job.name)
        train = chain(*_training_command(job, client))
        training = stack.enter_context(begin([*train], output=_OUTPUT, errors=_ERRORS))
        return training.wait()


def _training_command(job: TrainingJob, client: Line) -> Lines:
    limits = (("--shm-size", docker_size(job.shm_bytes)), ("--stop-timeout", str(SAVE_SECONDS)))
    ports = (("--publish", f"127.0.0.1:{port}:{port}") for port in job.ports)
    own = (*gpu_options(job), *ports, *limits)
    container = _container(job, client, job.name, job.mounts, own)
    return (*container, job.launch_command())


def _board_command(job: TrainingJob, client: Line) -> Lines:
    """Return TensorBoard's command line; the engine chooses a free port of this machine."""
    port = (("--publish", f"127.0.0.1::{TENSORBOARD_PORT}"),)
    container = _container(job, client, _board_name(job), job.board_mounts, port)
    return (*container, job.board_command)


def chown_command(job: TrainingJob, client: Line) -> Line:
    """Return what gives the volume of checkpoints, which is root's when it is new, to the user."""
    volumes = [volume for volume in job.volumes if volume.target == MODEL]
    if not volumes or job.user is None:
        return ()
    root = ("--user", "0", "--volume", volumes[0].text)
    return (*_docker_run(job, client), *root, job.image, "chown", job.user, MODEL)


def _docker_run(job: TrainingJob, client: Line) -> Line:
    words: Line = (*client, "run", "--rm")
    if job.only_local:
        words = (*words, "--pull", "never")
    return words


def _container(
    job: TrainingJob, client: Line, name: str, mounts: Sequence[Mount], own: Lines
) -> Iterator[Line]:
    """Yield all before the command; ``own`` are options that the other container has not."""
    yield (*_docker_run(job, client), "--name", name)
    if job.user:
        yield ("--user", job.user)
    for mount in mounts:
        yield ("--volume", mount.text)
    yield from own
    for variable, value in job.variables.items():
        setting = variable if value is None else f"{variable}={value}"
        yield ("--env", setting)
    yield ("--workdir", WORK)
    yield (job.image,)


def gpu_options(job: TrainingJob) -> Lines:
    """Return what gives GPUs, and lets NCCL lock memory (its user guide, "Docker")."""
    if job.gpus is None:
        return ()
    # Docker reads the value as CSV.
    gpus = f'"{job.gpus}"' if "," in job.gpus else job.gpus
    return (("--gpus", gpus), ("--ulimit", "memlock=-1"))


def _board_name(job: TrainingJob) -> str:
    return f"{job.name}-tensorboard"


def _port_command(job: TrainingJob, client: Line) -> Line:
    return (*client, "port", _board_name(job), str(TENSORBOARD_PORT))


def _board_address(job: TrainingJob, client: Line) -> str:
    """Return where TensorBoard listens, once the engine has started its container."""
    end = time.monotonic() + _ENGINE_SECONDS
    port = _port_command(job, client)
    while not (answer := run(port, timeout=_ENGINE_SECONDS)).ok and time.monotonic() < end:
        time.sleep(0.1)
    _require(answer, "TensorBoard was not started")
    return answer.output.split()[0]


def _remove_container(client: Line, name: str) -> None:
    run([*client, "rm", "--force", "--volumes", name], timeout=_ENGINE_SECONDS)


def _require(answer: Finished, what: str) -> None:
    if not answer.ok:
        raise MachineError(f"{what}: {answer.last()}. Nothing is left running.")
