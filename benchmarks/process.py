"""One run of one command: what it took, and whether it ended well."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.memory import TreeWatch

#: Clock ticks a second in /proc/PID/stat.
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """One finished run: seconds, bytes, and the exit code.

    ``cpu`` is user + system time of the command and its children; ``engine_cpu`` is that of the
    watched engine meanwhile, with the build steps it ran; ``peak`` is the largest resident memory
    of the command's process tree, where it was watched.
    """

    code: int
    wall: float
    cpu: float
    engine_cpu: float | None = None
    peak: int | None = None
    said: str = ""
    facts: Mapping[str, float] = field(default_factory=dict)


def run(  # noqa: PLR0913  # what, where, and how it is watched
    command: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    engine_pid: int | None = None,
    watch: float | None = None,
) -> Run:
    """Run ``command`` to its end and measure it as a whole process.

    What it prints goes to ``log``. ``watch`` is the seconds between two looks at the memory of its
    process tree; ``None`` does not look.
    """
    before = engine_seconds(engine_pid)
    with log.open("wb") as file:
        started = time.monotonic()
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
        )
        tree = TreeWatch(process.pid, watch) if watch else None
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # interrupted: nothing goes on behind our back
            process.terminate()
            process.wait()
            raise
        wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    after = engine_seconds(engine_pid)
    return Run(
        process.returncode,
        wall,
        usage.ru_utime + usage.ru_stime,
        None if before is None or after is None else after - before,
        tree.stop() if tree else None,
        _last_words(log),
    )


def engine_seconds(pid: int | None) -> float | None:
    """Return the processor seconds of a process and of the children that it has waited for."""
    if pid is None:
        return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS


def _last_words(log: Path) -> str:
    text = log.read_bytes()[-2000:].decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-12:])
