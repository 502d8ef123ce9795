"""Start a program in its image, and tell how far it gets."""

import os
import posixpath
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from imgbuild.adopt.closure import Closure
from imgbuild.adopt.failures import (
    Frame,
    Start,
    judge_failure,
    judge_text,
    parse_traceback,
    read_failure,
    read_frames,
)
from imgbuild.adopt.program_container import (
    HOME,
    KILLED,
    PACKAGES,
    TEMPORARY,
    WORK,
    Program,
    ProgramRun,
    run_container,
)
from imgbuild.core.process import TIMED_OUT
from imgbuild.core.text import printable
from imgbuild.engine.types import GpuRequest
from imgbuild.training.training_job import MPI_USER

#: The first W&B that knows the mode "offline". Source: its change log, 0.10.13.
_WANDB_OFFLINE = Version("0.10.13")
#: A larger number in a report, for example an infinite one, is none.
_LARGEST_NUMBER = 1 << 53
#: Lines at the end of a program's output that say why it ends by itself.
_LAST_LINES = 6


def start_program(  # noqa: PLR0913 - the program, its image and its limits
    client: Sequence[str],
    image: str,
    folder: Path,
    closure: Closure,
    *,
    tag: str = "",
    packages: Mapping[str, str] | None = None,
    seconds: float = 20.0,
    network: bool = False,
    gpus: GpuRequest | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Start:
    """Run a program in a container with a copy of its repository, and tell how far it gets.

    A notebook runs in its own folder, and another program in the repository's. If the latter stops
    for a file that is in its own folder, it is run again in that one.

    - ``client``: the Docker client with the options that select its engine
    - ``tag``: the name of the image, whose lock the caller holds
    - ``packages``: versions of the image's packages, by canonical name
    - ``seconds``: the time limit after its imports
    - ``gpus``: how to request the engine's GPUs; None: the container gets none
    - ``on_line``: called with each line of output and errors

    MachineError: the engine cannot run the container.
    """
    entry = closure.entry
    own_folder = posixpath.dirname(entry.path)
    program = Program(
        client=tuple(client),
        image=image,
        tag=tag,
        repository=folder,
        path=f"{WORK}/{entry.path}",
        user=_choose_user(),
        folder=_in_container(own_folder if entry.is_notebook else ""),
        arguments=entry.arguments,
        module=entry.module,
        is_notebook=entry.is_notebook,
        roots=program_roots(closure),
        package_name=closure.package_name if closure.package_name.isidentifier() else "",
        variables=program_variables(packages or {}),
        network=network,
        gpus=gpus,
        seconds=seconds,
    )
    ran = run_container(program, on_line)
    start = classify(ran, program)
    if own_folder and not entry.module and _is_beside(start, own_folder, ran.names):
        program = replace(program, folder=_in_container(own_folder))
        start = classify(run_container(program, on_line), program)
    return start


def program_variables(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let a program run without a display, a network and a home."""
    mode = "offline"
    with suppress(InvalidVersion):
        if Version(packages.get("wandb", "1")) < _WANDB_OFFLINE:
            mode = "dryrun"
    return {
        "HOME": HOME,
        "TMPDIR": TEMPORARY,
        # `getpass.getuser` fails for a user id without a name.
        "USER": "user",
        "LOGNAME": "user",
        "MPLBACKEND": "Agg",
        "SDL_VIDEODRIVER": "dummy",
        "SDL_AUDIODRIVER": "dummy",
        "WANDB_MODE": mode,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Notebooks install packages, which fails without a network; it shall fail at once.
        "PIP_RETRIES": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def program_roots(closure: Closure) -> tuple[str, ...]:
    """Return the folders of PYTHONPATH in the container."""
    roots = [_in_container(root) for root in closure.roots]
    if closure.package_name.isidentifier():
        roots.append(PACKAGES)
    return tuple(dict.fromkeys(roots))


def _in_container(folder: str) -> str:
    return f"{WORK}/{folder}" if folder not in {"", "."} else WORK


def _choose_user() -> str:
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else f"{MPI_USER}:{MPI_USER}"


def _is_beside(start: Start, own_folder: str, names: frozenset[str]) -> bool:
    """Return whether the file that a program stops for is in its own folder."""
    if start.outcome != "stops" or start.reason != "data" or start.folder or not start.asked:
        return False
    wanted = start.asked.removeprefix(f"{WORK}/")
    beside = posixpath.normpath(posixpath.join(own_folder, wanted))
    return posixpath.normpath(wanted) not in names and beside in names


def classify(ran: ProgramRun, program: Program) -> Start:
    """Return how far a program got."""
    events = {str(report.get("event")): report for report in ran.reports}
    ended, limit = events.get("ended"), events.get("limit")
    code = _number(ended, "code") if ended else None
    base = Start(
        "fails",
        line="".join(_last_lines(ran)[-1:]),
        seconds=_number(ended or limit, "seconds") or 0.0,
        folder=program.folder.removeprefix(WORK).strip("/"),
        not_copied=ran.notes,
    )
    if limit:
        return _classify_limit(base, limit, program)
    if not ended:  # the supervisor itself was killed
        reasons = {KILLED: "memory", TIMED_OUT: "imports not finished"}
        return replace(base, reason=reasons.get(ran.code, "other"))
    if code == 0:
        return replace(base, outcome="finished", line="")
    if code is not None and code < 0:
        return _classify_signal(base, ended, int(-code), program)
    base = replace(base, line=base.line or f"exit code {code}")
    return _classify_error(base, events.get("error"), ran, program)


def _classify_limit(base: Start, limit: Mapping[str, Any], program: Program) -> Start:
    """Return whether the program was running or still importing other packages at its limit."""
    if written := _number(limit, "written"):
        line = f"the engine's disk lost {written / (1 << 30):.1f} GiB while it ran"
        return replace(base, reason="disk", line=line)
    stack = read_frames(limit.get("stack"))
    place = find_place(stack[::-1], program)
    proves = bool(stack) or limit.get("imports") is True
    if limit.get("importing") is True or not proves:
        return replace(base, reason="imports not finished", place=place)
    return replace(base, outcome="running", place=place)


def _classify_signal(base: Start, ended: Mapping[str, Any], number: int, program: Program) -> Start:
    place = find_place(read_frames(ended.get("stack"))[::-1], program)
    if number == signal.SIGKILL:
        return replace(base, reason="memory", line="killed for memory", place=place)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return replace(base, reason="crash", line=f"killed by {name}", place=place)


def _classify_error(
    base: Start, report: Mapping[str, Any] | None, ran: ProgramRun, program: Program
) -> Start:
    failure = read_failure(report) if report else None
    is_exit = failure is None or "SystemExit" in failure.classes
    verdict = judge_failure(failure) if failure else Start("fails", "other")
    if is_exit and verdict.reason == "other":
        # A program that prints its error and ends.
        printed = parse_traceback(ran.errors) or parse_traceback(ran.output)
        text = failure.code if failure and isinstance(failure.code, str) else ""
        asked = judge_text(text or "\n".join(_last_lines(ran)[-_LAST_LINES:]))
        if printed:
            failure, verdict, is_exit = printed, judge_failure(printed), False
        elif asked:
            verdict = asked
    line = base.line if is_exit or failure is None else failure.line
    frames = failure.frames if failure else ()
    causes = [f"{kind}: {text}" for kind, text in (failure.causes if failure else ())]
    return replace(
        base,
        outcome=verdict.outcome,
        reason=verdict.reason,
        line=_clean(line or base.line),
        place=find_place(frames, program),
        source=_clean(_find_own(frames, program).source),
        package=_find_package(frames),
        asked=_clean(_shorten(verdict.asked or (line if verdict.outcome == "stops" else ""))),
        missing=_clean(verdict.missing),
        cause=_clean(causes[0] if causes else ""),
    )


def find_place(frames: Sequence[Frame], program: Program) -> str:
    """Return file and line of the deepest frame in the repository."""
    frame = _find_own(frames, program)
    return _clean(f"{frame.path}:{frame.line}") if frame.path else ""


def _find_own(frames: Sequence[Frame], program: Program) -> Frame:
    """Return the deepest frame in the repository, with its path in it."""
    for frame in reversed(frames):
        path = posixpath.normpath(posixpath.join(program.folder, frame.path))
        if program.package_name:
            path = path.replace(f"{PACKAGES}/{program.package_name}/", f"{WORK}/", 1)
        if path.startswith(f"{WORK}/") and not frame.path.startswith("<"):
            return frame._replace(path=path.removeprefix(f"{WORK}/"))
    return Frame("", 0, "")


def _find_package(frames: Sequence[Frame]) -> str:
    """Return the installed package of the deepest frame."""
    _, found, path = (frames[-1].path if frames else "").rpartition("/site-packages/")
    return _clean(path.partition("/")[0].removesuffix(".py")) if found else ""


def _shorten(asked: str) -> str:
    return asked.removeprefix(f"{WORK}/")


def _clean(text: str) -> str:
    return printable(" ".join(text.split())[:500])


def _last_lines(ran: ProgramRun) -> tuple[str, ...]:
    lines = [_clean(line) for line in f"{ran.output}\n{ran.errors}".splitlines()[-200:]]
    return tuple([line for line in lines if line][-20:])


def _number(report: Mapping[str, Any] | None, name: str) -> float | None:
    """Return a number of a report, which a program can forge."""
    value = report.get(name) if report else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if -_LARGEST_NUMBER < value < _LARGEST_NUMBER else None
