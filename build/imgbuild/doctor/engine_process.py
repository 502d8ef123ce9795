"""Starting and stopping imgbuild's own engine, and no other."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from imgbuild.doctor import processes
from imgbuild.doctor.own_engine import OPTIONS_VARIABLE, OwnEngine, extra_options, is_dockerd
from imgbuild.errors import MachineError

START_SECONDS = 60.0
#: dockerd gives each container ten seconds to end.
STOP_SECONDS = 30.0
_LAST_LINES = 8


def other_engines(own: OwnEngine) -> list[int]:
    """Return the engines of this machine that imgbuild did not start."""

    def is_other(words: tuple[str, ...]) -> bool:
        return is_dockerd(words) and not own.is_own(words)

    return processes.find_processes(is_other)


def refuse_beside_others(own: OwnEngine, environment: Mapping[str, str] = os.environ) -> None:
    """Two engines share one bridge and one set of firewall rules, unless told otherwise.

    Raises:
        MachineError: another engine runs on this machine.

    """
    others = other_engines(own)
    if others and not any(word.startswith("--bridge") for word in extra_options(environment)):
        raise MachineError(
            f"Another Docker engine runs on this machine (process {others[0]}: "
            f"{shlex.join(processes.command_line(others[0]))}). A second one would change its "
            "network rules. Use that one: set DOCKER_HOST, or engine.host in imgbuild.local.yaml; "
            "or give imgbuild's own engine another bridge: "
            f"{OPTIONS_VARIABLE}='--bridge=NAME --iptables=false --ip6tables=false'."
        )


def start(
    own: OwnEngine,
    dockerd: str,
    answers: Callable[[str], bool],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Start the engine and wait until it answers.

    Raises:
        MachineError: another engine runs, or this one does not come up; with its last words.

    """
    refuse_beside_others(own, environment)
    running = own.pid()
    if running is None:
        _clear(own)
        process = _launch(own, own.command(dockerd, environment))
        _wait(own, answers, process)
        process.returncode = 0  # it outlives us on purpose, of which Popen would warn
    else:
        _wait(own, answers, None)


def stop(own: OwnEngine, patience: float = STOP_SECONDS) -> bool:
    """Stop the engine that imgbuild started, containers too; return whether there was one.

    Never another one: the process must be a dockerd with imgbuild's own data folder.
    """
    pid = own.pid()
    if pid is not None:
        processes.end(pid, patience=patience)
    left = own.leftovers()
    processes.kill(left)
    for path in (own.pidfile, own.run / "docker.sock"):
        path.unlink(missing_ok=True)
    return pid is not None or bool(left)


def _clear(own: OwnEngine) -> None:
    """Remove what a dead engine left: dockerd refuses to start beside it."""
    processes.kill(own.leftovers())
    own.pidfile.unlink(missing_ok=True)


def _launch(own: OwnEngine, command: list[str]) -> "subprocess.Popen[bytes]":
    try:
        own.data_root.mkdir(parents=True, exist_ok=True)
        own.run.mkdir(parents=True, exist_ok=True)
        own.config.write_text("{}\n", encoding="ascii")
        with own.log.open("wb") as log:
            # A session of its own: it outlives this program, and Ctrl-C does not reach it.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
    except OSError as error:
        raise MachineError(f"{command[0]} cannot be started: {error}.") from error


def _wait(
    own: OwnEngine, answers: Callable[[str], bool], process: "subprocess.Popen[bytes] | None"
) -> None:
    limit = time.monotonic() + START_SECONDS
    while not answers(own.host):
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > limit:
            how = "ended" if ended else f"does not answer after {START_SECONDS:.0f} s"
            raise MachineError(f"The engine {how}. Its last lines ({own.log}): {_last_words(own)}")
        time.sleep(0.2)


def _last_words(own: OwnEngine) -> str:
    with suppress(OSError):
        lines = own.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(line for line in lines[-_LAST_LINES:] if line) or "none"
    return "none"
