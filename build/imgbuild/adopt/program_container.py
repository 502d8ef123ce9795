"""Run a program in a container of its own, with limits on its time, memory and output."""

import json
import os
import re
import secrets
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Timer
from typing import Any, cast

from imgbuild.adopt.code_archive import SECONDS as COPY_SECONDS
from imgbuild.adopt.code_archive import CodeArchive
from imgbuild.core.errors import MachineError
from imgbuild.core.files import parse_json
from imgbuild.core.process import TIMED_OUT, Process, run, start
from imgbuild.core.text import printable
from imgbuild.engine.types import GpuRequest
from imgbuild.suites.container import CONTAINER_LABEL, make_label
from imgbuild.suites.runner import folder_name
from imgbuild.training.docker_run import remove_container

#: The folders of the code, of the runner, and of links by which the code is a package.
WORK, RUNNER, PACKAGES = "/work", "/imgbuild-adopt", "/packages"
HOME, TEMPORARY = f"{RUNNER}/home", f"{RUNNER}/temporary"
#: The programs of this package that run in the container.
SUPERVISOR, NOTEBOOK = "run_entry.py", "run_notebook.py"
#: The exit code of a container whose first process the kernel killed.
KILLED = 137
#: Bytes of memory, of /dev/shm, and the number of processes and threads. TensorFlow starts some
#: threads for each processor.
MEMORY_BYTES, SHARED_BYTES, PROCESSES = 8 << 30, 1 << 30, 1024 + 16 * (os.cpu_count() or 1)
_ENGINE_SECONDS, _GRACE_SECONDS = 60, 10
#: Seconds that the imports of a program may take.
IMPORT_SECONDS = 120.0
#: The exit codes of `docker start` for faults of the engine: 125, 126 and 127.
_ENGINE_FAULTS = range(125, 128)
#: Limits of output: bytes that are kept, characters of a line, and lines that are passed on.
_TAIL, _LINE, _LINES = 1 << 16, 2000, 20_000
#: Limits of reports: bytes of all together, and bytes of the end of a chunk that may begin one.
_REPORT_BYTES, _PENDING = 4 << 20, 1 << 13
_CHUNK = 1 << 16
#: Options for all GPUs, or for none: some engines add the driver to every container.
_GPU_OPTIONS: Mapping[GpuRequest | None, tuple[str, str]] = {
    "nvidia": ("--gpus", "all"),
    "cdi": ("--device", "nvidia.com/gpu=all"),
    None: ("--env", "NVIDIA_VISIBLE_DEVICES=void"),
}


@dataclass(frozen=True)
class Program:
    """A program of a repository, the image that runs it, and its limits.

    Paths in the container are absolute.

    - ``client``: the Docker client with the options that select its engine
    - ``tag``: the name of the image, by which `imgbuild clean` finds its lock
    - ``module``: set if it is run by ``python -m``
    - ``is_notebook``: its cells are run by a kernel
    - ``gpus``: how to request the engine's GPUs; None: the container gets none
    - ``seconds``: the time limit after its imports
    """

    client: tuple[str, ...]
    image: str
    repository: Path
    path: str
    user: str
    tag: str = ""
    folder: str = WORK
    arguments: tuple[str, ...] = ()
    module: str = ""
    is_notebook: bool = False
    roots: tuple[str, ...] = ()
    package_name: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    gpus: GpuRequest | None = None
    seconds: float = 20.0

    def settings(self) -> str:
        """Return the settings of `run_entry`."""
        settings = {
            "child": NOTEBOOK if self.is_notebook else SUPERVISOR,
            "program": self.path,
            "module": self.module,
            "arguments": self.arguments,
            "folder": self.folder,
            "roots": self.roots,
            "code": [WORK, PACKAGES],
            "seconds": self.seconds,
            "import_seconds": IMPORT_SECONDS,
        }
        return json.dumps(settings)


@dataclass(frozen=True)
class ProgramRun:
    """The runner's reports, the end of the program's output, and the exit code.

    ``names`` are the files and folders of the repository that it had.
    """

    reports: tuple[Mapping[str, Any], ...] = ()
    output: str = ""
    errors: str = ""
    code: int = 0
    names: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def run_container(program: Program, on_line: Callable[[str], None] | None = None) -> ProgramRun:
    """Run a program in a container with a copy of its repository, and remove the container.

    MachineError: the engine cannot make or start the container, or the folder cannot be read.
    """
    name, mark = f"imgbuild-adopt-{secrets.token_hex(6)}", secrets.token_hex(8)
    with ExitStack() as stack:
        stack.callback(remove_container, program.client, name)
        created = run(_create_command(program, name, mark), timeout=_ENGINE_SECONDS)
        if not created.ok:
            raise MachineError(f"The program's container was not created: {created.last()}.")
        archive = _copy_code(program, name)
        limit = program.seconds + IMPORT_SECONDS + _ENGINE_SECONDS
        reading = _Reading(mark, on_line)
        command = [*program.client, "start", "--attach", name]
        with start(command, errors=-1, leader_first=True, grace=_GRACE_SECONDS) as process:
            _read_output(process, reading, limit)
            code = process.wait(_ENGINE_SECONDS) if reading.ended else TIMED_OUT
    ran = reading.finish(code)
    if code in _ENGINE_FAULTS and not ran.reports:
        raise MachineError(f"The program's container was not started: {ran.errors.strip()[-300:]}")
    return replace(ran, names=frozenset(archive.names), notes=tuple(archive.notes))


def _create_command(program: Program, name: str, mark: str) -> list[str]:
    """Return the command that creates the container.

    Without a network, /etc/hosts has no name of the container, which programs look up; so it gets
    one. The engine keeps no log of the output, because it could fill the disk.
    """
    label = f"{CONTAINER_LABEL}={make_label(folder_name(program.tag))}"
    own = (
        *("--rm", "--pull", "never", "--name", name, "--label", label),
        *("--user", program.user, "--workdir", WORK),
    )
    limits = (
        *("--memory", str(MEMORY_BYTES), "--memory-swap", str(MEMORY_BYTES)),
        *("--pids-limit", str(PROCESSES), "--shm-size", str(SHARED_BYTES), "--log-driver", "none"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    )
    network = ("--network", "none", "--hostname", "adopt", "--add-host", "adopt:127.0.0.1")
    words = [*program.client, "create", *own, *limits, *_GPU_OPTIONS[program.gpus]]
    words += () if program.network else network
    for variable, value in program.variables.items():
        words += ["--env", f"{variable}={value}"]
    supervise = (f"{RUNNER}/{SUPERVISOR}", "supervise", mark, f"{RUNNER}/settings.json")
    return [*words, "--entrypoint", "python", program.image, *supervise]


def _copy_code(program: Program, name: str) -> CodeArchive:
    """Send the repository and the runner into the container, as a stream.

    No mount is used, because the engine may be remote, and the user's files stay as they are.
    """
    command = [*program.client, "cp", "-", f"{name}:/"]
    try:
        with (
            start(command, stdin=-1, grace=_GRACE_SECONDS) as process,
            _limit(process, COPY_SECONDS + _ENGINE_SECONDS),
        ):
            stream = cast("Any", process.stdin).buffer
            with CodeArchive(stream, WORK) as archive:
                _add_all(archive, program)
            output, _ = process.communicate()
    except (BrokenPipeError, ConnectionError) as error:
        raise MachineError("The engine did not take the copy of the program. Try again.") from error
    except OSError as error:
        raise MachineError(f"{program.repository} cannot be read: {error.strerror}.") from error
    if process.returncode:
        last = " ".join(str(output).split())[-300:]
        raise MachineError(f"The engine did not take the copy of the program: {last}")
    return archive


def _add_all(archive: CodeArchive, program: Program) -> None:
    for folder in (RUNNER, HOME, TEMPORARY, PACKAGES):
        archive.add_folder(folder)
    for name in (SUPERVISOR, NOTEBOOK):
        text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        archive.add_text(f"{RUNNER}/{name}", text)
    archive.add_text(f"{RUNNER}/settings.json", program.settings())
    if program.package_name:
        archive.add_link(f"{PACKAGES}/{program.package_name}", WORK)
    archive.add_repository(str(program.repository))


@contextmanager
def _limit(process: Process, seconds: float) -> Iterator[None]:
    """Kill a process that takes longer."""
    timer = Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _read_output(process: Process, reading: "_Reading", seconds: float) -> None:
    """Read the output and errors of a process until both end, or for so long."""
    end = time.monotonic() + seconds
    streams = {process.stdout: reading.take_output, process.stderr: reading.take_errors}
    with selectors.DefaultSelector() as selector:
        for stream, take in streams.items():
            if stream:
                selector.register(stream, selectors.EVENT_READ, take)
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                return
            for key, _ in selector.select(left):
                data = os.read(key.fd, _CHUNK)
                key.data(data)
                if not data:
                    selector.unregister(key.fileobj)
    reading.ended = True


class _Reading:
    """Read a program's output: pass on its lines, and keep its last part and the reports."""

    def __init__(self, mark: str, on_line: Callable[[str], None] | None) -> None:
        self.ended = False
        self._reports = _Reports(mark)
        self._output, self._errors = _Lines(self._pass_on), _Lines(self._pass_on)
        self._on_line = on_line
        self._passed = 0

    def take_output(self, data: bytes) -> None:
        self._output.take(data)

    def take_errors(self, data: bytes) -> None:
        self._errors.take(self._reports.take(data))

    def finish(self, code: int) -> ProgramRun:
        output, errors = self._output.end(), self._errors.end()
        return ProgramRun(tuple(self._reports.reports), output, errors, code)

    def _pass_on(self, line: str) -> None:
        if self._on_line and self._passed < _LINES:
            self._passed += 1
            self._on_line(line)


class _Lines:
    """The lines of a stream, and its last bytes. A progress bar ends its lines with returns."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.tail = bytearray()
        self._rest = b""
        self._on_line = on_line

    def take(self, data: bytes) -> None:
        self.tail += data
        del self.tail[:-_TAIL]
        *lines, self._rest = re.split(rb"[\r\n]", self._rest + data)
        for line in lines:
            self._say(line)
        if len(self._rest) > _LINE:
            self._rest = self._rest[:_LINE]

    def end(self) -> str:
        """Pass on an unfinished line, and return the last part."""
        self._say(self._rest)
        return self.tail.decode(errors="replace")

    def _say(self, line: bytes) -> None:
        text = printable(line[:_LINE].decode(errors="replace")).rstrip()
        if text:
            self._on_line(text)


class _Reports:
    """The runner's reports, which are taken out of the program's errors; see `run_entry`."""

    def __init__(self, mark: str) -> None:
        self.reports: list[Mapping[str, Any]] = []
        self._begin = b"\x1e" + mark.encode()
        self._pending = b""
        self._pieces = bytearray()

    def take(self, data: bytes) -> bytes:
        """Return the data without reports; keep back an unfinished report."""
        data, own = self._pending + data, bytearray()
        self._pending = b""
        while (at := data.find(self._begin)) >= 0:
            end = data.find(b"\x1e", at + 1)
            own += data[:at]
            if end < 0:
                if len(data) - at < _PENDING:
                    self._pending = data[at:]
                return bytes(own)
            self._add_piece(data[at + len(self._begin) : end])
            data = data[end + 1 :]
        kept = next(
            (size for size in range(len(self._begin), 0, -1) if data.endswith(self._begin[:size])),
            0,
        )
        self._pending = data[len(data) - kept :]
        return bytes(own + data[: len(data) - kept])

    def _add_piece(self, piece: bytes) -> None:
        if len(self._pieces) < _REPORT_BYTES:
            self._pieces += piece[1:]
        if piece[:1] == b"+":
            return
        text, self._pieces = bytes(self._pieces), bytearray()
        try:
            report = parse_json(text)
        except ValueError:
            return
        if isinstance(report, dict) and len(self.reports) < 100:
            self.reports.append(report)
