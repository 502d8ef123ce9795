"""``imgbuild adopt``: bring an old repository to a running program in an image."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from imgbuild.cli import options
from imgbuild.cli.options import echo, flag, info, option, print_json
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from imgbuild.adopt.adopt import Adopted
    from imgbuild.adopt.choice import Decision
    from imgbuild.adopt.decide import DecidedProgram
    from imgbuild.adopt.failures import Start


def adopt(
    ctx: typer.Context,
    folder: Path = typer.Argument(
        Path(), metavar="DIR", help="Folder of the repository. Default: the current folder."
    ),
    tensorflow: str | None = option(
        "--tf VERSION",
        "TensorFlow version. Default: chosen by the code and the files of the repository.",
    ),
    gpu: bool = flag("--gpu", "Use an image for GPUs. Default: the CPU image."),
    entry: str | None = option("--entry FILE", "Program or notebook to start."),
    day: str | None = option(
        "--date YYYY-MM-DD", "Resolve packages as of this day. Default: the code's last change."
    ),
    tag: str | None = option("--tag -t NAME:TAG", "Name of the image. Default: adopted/FOLDER:1."),
    print_only: bool = flag("--print", "Print a Dockerfile. Build nothing, and write no files."),
    refresh: bool = flag("--refresh", "Ignore imgbuild.adopt.yaml, and decide again."),
    network: bool = flag("--network", "Allow the program to use the network during the trial."),
    time_limit: str = option(
        "--time-limit DURATION",
        "Stop the program after this time, counted from the end of its imports.",
        default="20s",
    ),
    platform: str | None = option(
        "--platform PLATFORM", "linux/amd64 or linux/arm64. Default: the platform of the engine."
    ),
    jobs: int = options.JOBS,
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Choose an image and packages for an old repository, build the result, and try its program.

    Nothing of the repository runs outside a container. The decisions are written to
    imgbuild.adopt.yaml, where you can edit them.

    Exit codes: 0 the program finishes, is still running at the time limit, or stops for data,
    arguments, input, the network or a GPU; 1 it fails, or a package that it needs cannot be
    installed; 2 there is no image for it, or an option is wrong; 3 this machine cannot build.

    Example: imgbuild adopt ~/churn
    """
    from imgbuild.adopt.adopt import adopt_program, print_dockerfile
    from imgbuild.adopt.adoption import read_adoption
    from imgbuild.adopt.decide import AdoptOptions, decide, recall
    from imgbuild.adopt.repository import open_repository
    from imgbuild.extend.extension import parse_extension

    seconds = options.seconds("--time-limit", time_limit) or 0
    named = parse_extension({"tag": tag}).tag if tag else None
    day_of_code = _parse_day(day)
    repository = open_repository(folder)
    checkout = options.replace_found_checkout(ctx, checkout)
    architecture = options.architecture_of(platform, checkout.settings)
    chosen = AdoptOptions(
        tensorflow, gpu, entry, day_of_code, named, seconds, network, jobs, architecture
    )
    matrix = options.load_matrix(checkout)
    saved = None if refresh or chosen.changes_decisions else read_adoption(repository.folder)
    try:
        if saved:
            program = recall(repository, checkout, matrix, saved, chosen)
        else:
            program = decide(repository, checkout, matrix, chosen, datetime.now(UTC).date())
    except InputError as error:
        if as_json and error.kind:
            print_json({**_nothing(), "refused": error.kind, "reason": str(error)})
        raise
    if not as_json:
        # The result of --print is the Dockerfile alone.
        say = info if print_only else echo
        _show_decisions(program, say)
    if print_only:
        echo(print_dockerfile(program, checkout, info))
        return
    adopted = adopt_program(program, checkout, chosen, info)
    if as_json:
        print_json(_describe(adopted))
    else:
        _show_result(adopted)
    raise typer.Exit(adopted.exit_code)


def _parse_day(text: str | None) -> "date | None":
    from imgbuild.adopt.adoption import parse_day

    try:
        return None if text is None else parse_day(text)
    except ValueError:
        raise InputError(
            f"--date {text} is not a day. Use YYYY-MM-DD, for example 2019-12-31."
        ) from None


def _show_decisions(program: "DecidedProgram", say: "Callable[[str], None]") -> None:
    """Print the decisions and their reasons."""
    from imgbuild.adopt.adopt import program_command
    from imgbuild.adopt.adoption import FILE, explain_decision

    adoption = program.adoption
    if program.is_recalled:
        info(f"Using the decisions in {FILE}; --refresh decides anew.")
        say(f"TensorFlow {program.image.minor} ({adoption.image}); program: {adoption.entry}")
        return
    # Lines of requirement files can have the same subjects; they come last.
    decisions = {decision.subject: decision for decision in reversed(program.decisions)}
    chosen = decisions.pop("tensorflow")
    say(f"TensorFlow {chosen.value} ({adoption.image}): {chosen.reason}.")
    for text in chosen.against:
        say(f"  but {text}")
    if cuda := program.image.cuda:
        say(f"  needs NVIDIA's driver {cuda.driver} or newer; GPUs: imgbuild show {adoption.image}")
    else:
        say("  for a GPU: imgbuild adopt --gpu")
    entry = decisions.pop("entry")
    say(f"Program: {shlex.join(program_command(adoption))}")
    say(f"  {entry.reason}")
    python, dated = decisions.pop("python", None), decisions.pop("date", None)
    if python and python.against:
        say(f"Python {explain_decision(python)}")
    when = f"as of {adoption.date}" if adoption.date else "the newest that fit"
    why = f" ({dated.reason})" if dated and dated.reason else ""
    say(f"Packages, {when}{why}: {', '.join(adoption.pip) or 'none'}")
    shown = {"tensorflow", "entry", "python", "date"}
    for decision in program.decisions:
        if decision.subject not in shown:
            say(f"  {decision.subject}: {explain_decision(decision)}")
    for package in adoption.apt:
        say(f"  from Debian: {package}")
    for note in program.notes:
        say(f"  note: {note}")


def _show_result(adopted: "Adopted") -> None:
    """Print how far the program got, and how to run it."""
    from imgbuild.adopt.adopt import run_command
    from imgbuild.adopt.adoption import FILE, LOCK
    from imgbuild.core.text import clock_time

    program, start = adopted.program, adopted.start
    tag = program.adoption.tag
    if adopted.is_unchanged:
        echo(f"Nothing has changed since {tag} was built. {_describe_start(start)}")
    else:
        for remedy in adopted.remedies:
            echo(f"Fixed: {remedy}.")
        echo(_describe_start(start))
        for name, why in adopted.missing:
            echo(f"Missing: the program imports {name}, which is left out: {why}.")
        times = adopted.times
        spent = sum(times[phase] for phase in ("resolve", "build", "start", "test"))
        tested = f"Tested: {', '.join(adopted.suites)}. " if adopted.suites else ""
        echo(f"{tested}Tagged {tag}. {clock_time(spent)} in all.")
    echo(f"Run it:\n  {run_command(program)}")
    if not adopted.is_unchanged:
        lock = program.repository.folder / LOCK
        if lock.is_file():
            locked = f", {LOCK} (packages with hashes)"
            echo(f"Written: {FILE} (what was decided, and why){locked}. Commit them.")
        else:
            echo(f"Written: {FILE} (what was decided, and why). Commit it.")


def _describe_start(start: "Start") -> str:
    place = f" ({start.place})" if start.place else ""
    line = f": {start.line}" if start.line else ""
    if start.outcome == "finished":
        return f"The program runs to its end, in {start.seconds:.0f} s."
    if start.outcome == "running":
        return f"The program was still running after {start.seconds:.0f} s, so adopt stopped it."
    if start.outcome == "stops":
        asked = start.asked or start.line
        return f"The program starts, then stops for {start.reason}: {asked}{place}."
    reason = f", {start.reason}" if start.reason != "other" else ""
    return f"The program fails{reason}{line}{place}."


def _nothing() -> dict[str, Any]:
    keys = ("tensorflow", "python", "image", "tag", "refused", "reason", "outcome", "command")
    return {**dict.fromkeys(keys), "missing": [], "pythonpath": [], "workdir": None}


def _describe(adopted: "Adopted") -> dict[str, Any]:
    from imgbuild.adopt.adopt import program_command
    from imgbuild.adopt.start import program_roots

    program, start = adopted.program, adopted.start
    return {
        **_nothing(),
        "tensorflow": program.image.tensorflow,
        "python": program.base.python,
        "image": program.adoption.image,
        "tag": program.adoption.tag,
        "missing": [{"name": name, "reason": why} for name, why in adopted.missing],
        "command": list(program_command(program.adoption)),
        "pythonpath": list(program_roots(program.closure)),
        "workdir": start.folder or ".",
        "outcome": start.outcome,
        "reason": start.reason or None,
        "line": start.line or None,
        "place": start.place or None,
        "seconds": {name: round(value, 1) for name, value in adopted.times.items()},
        "remedies": list(adopted.remedies),
        "decisions": [_describe_decision(decision) for decision in program.decisions],
    }


def _describe_decision(decision: "Decision") -> dict[str, Any]:
    return {
        "subject": decision.subject,
        "value": decision.value,
        "reason": decision.reason,
        "evidence": [str(place) for place in decision.evidence],
        "against": list(decision.against),
    }
