"""The model of a training job: program, image, ranks, folders and limits."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Literal

from imgbuild.core.errors import InputError
from imgbuild.core.text import printable
from imgbuild.matrix.components import Flavour
from imgbuild.net.addresses import has_registry

#: The folder of the code and of the program's start, the folder of checkpoints, and its variable.
WORK, MODEL, MODEL_VARIABLE = "/work", "/model", "MODEL_DIR"
#: The id of the unprivileged user in every image, for whom MPI's ssh is configured.
MPI_USER = "1000"
#: Seconds between SIGTERM and SIGKILL, in which a program can save. It is the default of Kubernetes
#: and Slurm.
SAVE_SECONDS = 30
TENSORBOARD_PORT = 6006
#: The variable of the check that GPU images make at container start (images/files/gpu-start).
GPU_CHECK = "IMGBUILD_GPU"
#: The folder in a container in which the driver keeps code that it compiled for the GPU, and the
#: variable that tells the driver.
KERNELS, KERNELS_VARIABLE = "/cuda-cache", "CUDA_CACHE_PATH"
_MIB = 1 << 20
#: Minimum size of /dev/shm, as in --shm-size=1g. Source: NCCL's user guide, section
#: "Troubleshooting", "Docker".
_SHM_LEAST = 1024 * _MIB
#: Shared memory per rank: buffers of 4 MiB (NCCL_BUFFSIZE), 16 channels, two neighbours.
_SHM_OF_RANK = 128 * _MIB

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")
_TARGET = re.compile(r"/[^:,\n]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?")
_GPUS = re.compile(r"all|none|[1-9][0-9]?|device=[0-9A-Za-z-]+(,[0-9A-Za-z-]+)*")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_SHM = re.compile(r"([1-9][0-9]{0,5})([mg])")


@dataclass(frozen=True)
class Mount:
    """A folder of this machine or a named volume, with its path in the container."""

    source: str
    target: str
    read_only: bool = False

    @property
    def is_volume(self) -> bool:
        """Whether the source is a volume. As in Docker, the path of a folder has a slash."""
        return "/" not in self.source

    @property
    def text(self) -> str:
        text = f"{self.source}:{self.target}"
        return f"{text}:ro" if self.read_only else text


@dataclass(frozen=True)
class TrainingJob:
    """A program to run in an image.

    - ``gpus``: the value of ``docker run --gpus``, or None
    - ``gpu_check``: ``require``: the container ends if TensorFlow cannot use a GPU; ``off``: it has
      no GPU on purpose; None: the image is not for GPUs
    - ``kernels``: the folder for code that the driver compiles; containers share it
    - ``ranks``: the number of ranks on all ``nodes`` together
    - ``servers``: the number of parameter servers
    - ``user``: ``UID`` or ``UID:GID``; None means root
    - ``seconds``: the time limit (0: no limit)
    - ``extra_variables``: a variable without a value is passed on from the caller's environment
    - ``checkpoints``: a volume or a folder
    - ``tensorboard``: the folder that TensorBoard shows
    """

    name: str
    image: str
    command: tuple[str, ...]
    code: Path
    mpi: Flavour = "openmpi"
    gpus: str | None = None
    gpu_check: Literal["require", "off"] | None = None
    kernels: Path | None = None
    ranks: int = 1
    nodes: int = 1
    servers: int = 0
    user: str | None = None
    shm_bytes: int = _SHM_LEAST
    seconds: int = 0
    extra_mounts: tuple[Mount, ...] = ()
    extra_variables: tuple[tuple[str, str | None], ...] = ()
    checkpoints: str | None = None
    tensorboard: str | None = None
    ports: tuple[int, ...] = ()

    @classmethod
    def from_options(  # noqa: PLR0913 - the options
        cls,
        *,
        name: str,
        image: str,
        command: Sequence[str],
        mpi: Flavour,
        ranks: int,
        nodes: int,
        servers: int,
        gpus: str | None,
        kernels: Path | None,
        user: str | None,
        seconds: float | None,
        code: str,
        mounts: Iterable[str],
        variables: Iterable[str],
        checkpoints: str | None,
        shm_size: str | None,
        tensorboard: str | None,
        ports: Iterable[int],
        has_program: bool,
    ) -> "TrainingJob":
        """Create a job from the options of `imgbuild run`.

        If ``has_program`` is true, the command must name a program.

        InputError: a value is wrong, or a folder does not exist.
        """
        given = tuple(map(parse_variable, variables))
        own_folder = any(name == KERNELS_VARIABLE for name, _ in given)
        job = cls(
            name=name,
            image=image,
            command=tuple(command),
            code=Path(parse_folder(code, "--code")),
            mpi=mpi,
            gpus=None if gpus == "none" else gpus,
            gpu_check=None if gpus is None else "off" if gpus == "none" else "require",
            kernels=kernels if gpus not in {None, "none"} and not own_folder else None,
            ranks=ranks,
            nodes=nodes,
            servers=servers,
            user=user,
            shm_bytes=parse_size(shm_size) if shm_size else shared_memory(-(-ranks // nodes)),
            seconds=round(seconds or 0),
            extra_mounts=tuple(map(parse_mount, mounts)),
            extra_variables=given,
            checkpoints=checkpoints and parse_source(checkpoints, "--checkpoints"),
            tensorboard=tensorboard,
            ports=tuple(ports),
        )
        check_job(job, has_program=has_program)
        return job

    @property
    def only_local(self) -> bool:
        """Whether the image must be in the engine: on Docker Hub, its name may be a stranger's."""
        return not has_registry(self.image)

    @property
    def mounts(self) -> tuple[Mount, ...]:
        kept = (Mount(self.checkpoints, MODEL),) if self.checkpoints else ()
        code = Mount(str(self.code), WORK)
        kernels = (Mount(str(self.kernels), KERNELS),) if self.kernels else ()
        return (code, *kept, *self.extra_mounts, *kernels)

    @property
    def volumes(self) -> tuple[Mount, ...]:
        return tuple(mount for mount in self.mounts if mount.is_volume)

    @property
    def board_mounts(self) -> tuple[Mount, ...]:
        """The mounts of TensorBoard's container, all read-only."""
        return tuple(replace(mount, read_only=True) for mount in self.mounts)

    @property
    def board_command(self) -> tuple[str, ...]:
        listen = ("--host", "0.0.0.0", "--port", str(TENSORBOARD_PORT))  # noqa: S104 - container
        return ("tensorboard", "--logdir", str(self.tensorboard), *listen)

    @property
    def variables(self) -> dict[str, str | None]:
        """The environment variables, with HOME for users who have no home in the image."""
        variables: dict[str, str | None] = {}
        if self.user is not None and self.user.split(":")[0] != MPI_USER:
            variables["HOME"] = "/tmp"  # noqa: S108
        if self.checkpoints:
            variables[MODEL_VARIABLE] = MODEL
        if self.gpu_check:
            variables[GPU_CHECK] = self.gpu_check
        if self.kernels:
            variables[KERNELS_VARIABLE] = KERNELS
        variables.update(self.extra_variables)
        return variables

    def without_gpus(self) -> "TrainingJob":
        """Return the job as one of its containers that gets no GPU."""
        check = ((GPU_CHECK, "off"),) if self.gpu_check else ()
        variables = (*self.extra_variables, *check)
        return replace(self, gpus=None, kernels=None, extra_variables=variables)

    @property
    def ranks_per_node(self) -> int:
        """The number of processes per node; 1 for the tasks of parameter servers."""
        return max(1, self.ranks // self.nodes)

    def launch_command(
        self, hosts: Sequence[str] = (), *, hostfile: bool = False
    ) -> tuple[str, ...]:
        """Return the command with mpirun and the time limit, if the job needs them.

        Ranks run on ``hosts``, or with ``hostfile`` on the hosts in the file that MPI's variables
        name. Otherwise they run in this container.
        """
        words, signal = self.command, "TERM"
        if self.ranks > 1 or hosts or hostfile:
            # Open MPI's mpirun passes on USR1 and waits. After TERM, it kills ranks in a second.
            words, signal = (*self._mpirun(hosts, hostfile=hostfile), *words), "USR1"
        if not self.seconds:
            return words
        # With --foreground, mpirun gets one signal only; a second TERM would kill immediately.
        limit = ("--foreground", f"--signal={signal}", f"--kill-after={SAVE_SECONDS}")
        return ("timeout", *limit, str(self.seconds), *words)

    def _mpirun(self, hosts: Sequence[str], *, hostfile: bool) -> Iterator[str]:
        """Yield mpirun and its options; docs/distributed.md explains them."""
        yield from ("mpirun", "-np", str(self.ranks))
        slots = self.ranks_per_node
        if self.mpi == "intelmpi":
            if hosts:
                yield from ("-ppn", str(slots), "-hosts", ",".join(hosts))
            return
        if hosts:
            places = [f"{host}:{slots}" for host in hosts]
            yield from ("-H", ",".join(places))
        elif not hostfile:
            yield "--oversubscribe"
        yield from ("-bind-to", "none")
        if hosts or hostfile:  # sshd starts with an empty environment
            for name in self.variables:
                if name != GPU_CHECK:  # each container has its own
                    yield from ("-x", name)


def shared_memory(ranks: int) -> int:
    """Return the bytes of /dev/shm for ``ranks`` in a container; the engine's default is 64 MB."""
    return max(_SHM_LEAST, ranks * _SHM_OF_RANK)


def shell_command(lines: Iterable[Sequence[str]]) -> str:
    """Return a shell command that spans several lines."""
    return " \\\n    ".join(shlex.join(line) for line in lines)


def docker_size(size: int) -> str:
    """Format a size in bytes for Docker, for example ``1g``."""
    gib, rest = divmod(size // _MIB, 1024)
    return f"{size // _MIB}m" if rest else f"{gib}g"


def parse_size(text: str) -> int:
    """Return the bytes of ``512m`` or ``2g``; InputError for anything else."""
    match = _SHM.fullmatch(text)
    if match is None:
        raise InputError(f"--shm-size {text!r}: give MiB or GiB, for example 512m or 2g.")
    unit = _MIB if match[2] == "m" else 1024 * _MIB
    return int(match[1]) * unit


def parse_mount(text: str) -> Mount:
    """Parse ``SOURCE:TARGET[:ro]``; InputError if a folder does not exist."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    target = normpath(target)
    if not source or not _TARGET.fullmatch(target) or mode not in {"", "ro", "rw"}:
        raise InputError(
            f"--mount {text!r}: give SOURCE:TARGET or SOURCE:TARGET:ro, for example "
            "./data:/data:ro. TARGET is an absolute path in the container."
        )
    if target in {WORK, MODEL}:
        option = "--code" if target == WORK else "--checkpoints"
        raise InputError(f"--mount {text!r}: {option} mounts {target}. Use it, or another target.")
    place = parse_source(source, "--mount")
    return Mount(place, target, read_only=mode == "ro")


def parse_source(text: str, option: str) -> str:
    """Return the name of a volume, or the absolute path of an existing folder."""
    if "/" not in text and text not in {".", ".."}:
        if not _VOLUME.fullmatch(text):
            raise InputError(f"{option} {text!r}: not a valid volume name. A folder is ./NAME.")
        return text
    return parse_folder(text, option)


def parse_folder(text: str, option: str) -> str:
    """Return the absolute path of a folder; InputError if it is missing or cannot be mounted."""
    path = os.path.realpath(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser can raise
    if not Path(path).is_dir():
        raise InputError(f"{option} {text!r}: no such folder. Create it, or name another.")
    if ":" in path or "\n" in path or not _is_printable(path):
        raise InputError(
            f"{option} {text!r}: Docker cannot mount a path with a colon or with characters that "
            "do not print. Name another folder."
        )
    return path


def parse_variable(text: str) -> tuple[str, str | None]:
    """Parse ``NAME=VALUE``, or ``NAME`` to pass on a variable of this process."""
    name, separator, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise InputError(
            f"--env {text!r}: give NAME=VALUE, or NAME to pass on a variable. Names have letters, "
            "digits and '_'."
        )
    return name, value if separator else None


def check_job(job: TrainingJob, *, has_program: bool = True) -> None:
    """Raise InputError for a value that no tool supports."""
    problem = next(_problems(job, has_program=has_program), None)
    if problem:
        raise InputError(problem)


def _problems(job: TrainingJob, *, has_program: bool) -> Iterator[str]:
    yield from _word_problems(job, has_program=has_program)
    targets = Counter(mount.target for mount in job.mounts)
    twice = [target for target, count in targets.items() if count > 1]
    if twice:
        yield f"--mount: {', '.join(twice)} is used as a target twice; use different targets."
    if job.tensorboard and job.tensorboard.startswith("-"):
        yield f"--tensorboard {job.tensorboard!r}: name a folder, for example logs."
    elif job.tensorboard and has_program:  # a devcontainer has no container beside it
        shown = PurePosixPath(normpath(PurePosixPath(WORK) / job.tensorboard))
        mounted = [PurePosixPath(mount.target) for mount in job.mounts]
        if not any(shown.is_relative_to(at) or at.is_relative_to(shown) for at in mounted):
            yield (
                f"--tensorboard {job.tensorboard!r}: this folder is not mounted, so TensorBoard "
                f"cannot see the files. Mount a volume at {MODEL} with --checkpoints, mount a "
                "folder of this machine (--mount ./logs:/logs --tensorboard /logs), or name a "
                f"folder below {' or '.join(map(str, mounted))}."
            )
    if job.servers != 0 and job.ranks != 1:
        yield "-np is for MPI, which parameter servers do not use. Use --nodes instead."
    if job.ranks != 1 and job.ranks % job.nodes != 0:
        yield f"-np {job.ranks} on --nodes {job.nodes}: every node needs the same number of ranks."


def _word_problems(job: TrainingJob, *, has_program: bool) -> Iterator[str]:
    """Yield the problems of the program and of values with a fixed format."""
    command = job.command
    is_program = any(command[:1]) and not command[0].startswith("-")
    if has_program and not is_program:
        yield "Name the program to run, after `--`: imgbuild run -- python train.py"
    if not all(map(_is_printable, command)):
        yield "The command has characters that do not print."
    if not _NAME.fullmatch(job.name):
        yield f"--job {job.name!r}: not a valid name. Valid names are like train-1."
    if not _IMAGE.fullmatch(job.image):
        yield f"{job.image!r}: not a valid image name."
    if not _USER.fullmatch(job.user or "0"):
        yield f"--user {job.user!r}: give UID or UID:GID."
    if not _GPUS.fullmatch(job.gpus or "all"):
        yield f"--gpus {job.gpus!r}: give all, none, a number, or devices, for example device=0,1."


def _is_printable(word: str) -> bool:
    return word == printable(word)
