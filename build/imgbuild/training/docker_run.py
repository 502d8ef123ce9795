"""Write a training job as ``docker run`` commands, or run them."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from threading import Thread

from imgbuild.core.errors import MachineError
from imgbuild.core.process import Finished, run, start
from imgbuild.training.training_job import (
    GPU_CHECK,
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
#: Time limit for the engine to start TensorBoard's container or remove a container, in seconds.
_ENGINE_SECONDS = 60
#: Python's last line if it finds no module.
_NO_MODULE = re.compile(rb"ModuleNotFoundError: No module named '(\w+)")
#: The bytes at the end of a program's errors that can hold this line.
_TAIL = 1 << 16
#: The file descriptors of this process, which the job writes to directly.
_OUTPUT, _ERRORS = 1, 2


def docker_script(job: TrainingJob, client: Line) -> str:
    """Return the shell commands that run a job.

    ``client`` is the Docker client with the options that select its engine.
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


def run_job(job: TrainingJob, client: Line, log: Callable[[str], None], image: str = "") -> int:
    """Run a job and TensorBoard, if requested; return the job's exit code.

    If the job fails because its Python lacks a module, the last line is the command that adds it to
    ``image``, which is the job's image as `imgbuild extend` takes it.

    Both containers have ended when this function returns or raises. The Docker clients pass on
    signals, and containers that ignore them are removed.

    MachineError: the engine cannot start TensorBoard, or cannot prepare the volume.
    """
    if chown := chown_command(job, client):
        answer = run(chown, timeout=_ENGINE_SECONDS)
        _require(answer, "the volume cannot be prepared")
    missing = list[str]()
    with ExitStack() as stack:
        errors = stack.enter_context(_watch_errors(missing))
        begin = partial(start, leader_first=True, grace=SAVE_SECONDS + _ENGINE_SECONDS)
        if job.tensorboard:
            stack.callback(remove_container, client, _board_name(job))
            board = chain(*_board_command(job, client))
            stack.enter_context(begin([*board], output=_ERRORS, errors=_ERRORS))
            address = _board_address(job, client)
            log(f"TensorBoard: http://{address}/")
        stack.callback(remove_container, client, job.name)
        train = chain(*_training_command(job, client))
        training = stack.enter_context(begin([*train], output=_OUTPUT, errors=errors))
        code = training.wait()
    if code and missing:
        (module,) = missing
        log(
            f"The image has no module {module}. If it is not a file of your program (--code), add "
            f"the package that has it: `imgbuild extend {image or job.image} --pip {module}`. The "
            "package often has the same name."
        )
    return code


@contextmanager
def _watch_errors(missing: list[str]) -> Iterator[int]:
    """Yield a file descriptor for a program's errors, which are passed on to standard error.

    When the block has ended, ``missing`` has the last module that Python did not find, if any.
    """
    reading, writing = os.pipe()
    tail = bytearray()

    def pass_on() -> None:
        while chunk := os.read(reading, _TAIL):
            with suppress(OSError):  # nobody reads any more; the program goes on
                os.write(_ERRORS, chunk)
            tail.extend(chunk)
            del tail[:-_TAIL]

    thread = Thread(target=pass_on)
    thread.start()
    try:
        yield writing
    finally:
        os.close(writing)
        thread.join()
        os.close(reading)
        missing += [name.decode() for name in _NO_MODULE.findall(tail)[-1:]]


def _training_command(job: TrainingJob, client: Line) -> Lines:
    limits = (("--shm-size", docker_size(job.shm_bytes)), ("--stop-timeout", str(SAVE_SECONDS)))
    ports = (("--publish", f"127.0.0.1:{port}:{port}") for port in job.ports)
    own = (*gpu_options(job), *ports, *limits)
    container = _container(job, client, job.name, job.mounts, own)
    return (*container, job.launch_command())


def _board_command(job: TrainingJob, client: Line) -> Lines:
    """Return TensorBoard's command line; the engine chooses a free port."""
    port = (("--publish", f"127.0.0.1::{TENSORBOARD_PORT}"),)
    alone = job.without_gpus()
    container = _container(alone, client, _board_name(job), alone.board_mounts, port)
    return (*container, job.board_command)


def chown_command(job: TrainingJob, client: Line) -> Line:
    """Return the command that gives the user the checkpoint volume; a new volume belongs to root.

    Empty if the job has no such volume, or runs as root.
    """
    volumes = [volume for volume in job.volumes if volume.target == MODEL]
    if not volumes or job.user is None:
        return ()
    root = ("--user", "0", "--volume", volumes[0].text)
    check = ("--env", f"{GPU_CHECK}=off") if job.gpu_check else ()
    return (*_docker_run(job, client), *root, *check, job.image, "chown", job.user, MODEL)


def _docker_run(job: TrainingJob, client: Line) -> Line:
    words: Line = (*client, "run", "--rm")
    if job.only_local:
        words = (*words, "--pull", "never")
    return words


def _container(
    job: TrainingJob, client: Line, name: str, mounts: Sequence[Mount], own: Lines
) -> Iterator[Line]:
    """Yield the lines before the container's command; ``own`` are the options of this container."""
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
    """Return the options for GPUs and for NCCL's locked memory.

    Source: NCCL's user guide, "Docker".
    """
    if job.gpus is None:
        return ()
    # Docker parses the value as CSV.
    gpus = f'"{job.gpus}"' if "," in job.gpus else job.gpus
    return (("--gpus", gpus), ("--ulimit", "memlock=-1"))


def _board_name(job: TrainingJob) -> str:
    return f"{job.name}-tensorboard"


def _port_command(job: TrainingJob, client: Line) -> Line:
    return (*client, "port", _board_name(job), str(TENSORBOARD_PORT))


def _board_address(job: TrainingJob, client: Line) -> str:
    """Wait until the engine has started TensorBoard's container; return its address."""
    end = time.monotonic() + _ENGINE_SECONDS
    port = _port_command(job, client)
    while not (answer := run(port, timeout=_ENGINE_SECONDS)).ok and time.monotonic() < end:
        time.sleep(0.1)
    _require(answer, "TensorBoard was not started")
    return answer.output.split()[0]


def remove_container(client: Line, name: str) -> None:
    """Remove a container and its anonymous volumes, if it is there."""
    run([*client, "rm", "--force", "--volumes", name], timeout=_ENGINE_SECONDS)


def _require(answer: Finished, what: str) -> None:
    if not answer.ok:
        raise MachineError(f"{what}: {answer.last()}. No container is left running.")
