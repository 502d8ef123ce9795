"""What every benchmark's command line has: options, polite refusals, printing and writing."""

import argparse
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.results import RESULTS, Result, write

#: The exit codes are imgbuild's own.
FAILED, MACHINE = 1, 3


class MissingError(Exception):
    """This machine lacks something that the benchmark needs."""


@dataclass(frozen=True)
class Setting:
    """What a benchmark is given: how often, a folder for its work, and its other options."""

    rounds: int
    quick: bool
    work: Path
    options: argparse.Namespace

    @staticmethod
    def say(text: str) -> None:
        """Tell how it goes, beside the tables."""
        print(text, file=sys.stderr, flush=True)


def main(
    name: str,
    about: str,
    measure: Callable[[Setting], Result],
    *,
    rounds: tuple[int, int],
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
) -> None:
    """Run one benchmark as a program.

    ``rounds`` are the counted rounds usually and with ``--quick``. Exits with 1 if a contestant
    failed and with 3 if the machine lacks something.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=_positive, help=f"counted rounds (default {rounds[0]})")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller subjects")
    parser.add_argument("--json", type=Path, default=RESULTS / f"{name}.json", metavar="FILE")
    parser.add_argument("--work", type=Path, help="where temporary files go (default: TMPDIR)")
    options(parser)
    chosen = parser.parse_args()
    # Ended by a signal, a benchmark still takes its engine away.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    count = chosen.rounds or rounds[1 if chosen.quick else 0]
    with tempfile.TemporaryDirectory(prefix="imgbuild-bench-", dir=chosen.work) as folder:
        try:
            result = measure(Setting(count, chosen.quick, Path(folder), chosen))
        except MissingError as error:
            print(f"{name}: {error}", file=sys.stderr)
            sys.exit(MACHINE)
    show(result)
    write(result, chosen.json, versions())
    sys.exit(0 if result.ok else FAILED)


def show(result: Result) -> None:
    """Print the tables, the goals and what failed."""
    for section in result.sections:
        print(f"\n{section.title}\n\n{section.table}")
        for note in section.notes:
            print(f"\n{note}")
    for goal in result.goals:
        value = "not measured" if goal.measured is None else f"{goal.measured:.3g} {goal.unit}"
        verdict = {True: "met", False: "MISSED", None: "–"}[goal.met]
        print(f"goal: {goal.text}: {goal.aim}; {value.strip()}: {verdict}")
    for one in result.samples:
        if not one.ok:
            print(f"{one.name} failed: {one.error}", file=sys.stderr)


def versions() -> dict[str, str]:
    """Return the versions of what all benchmarks use."""
    programs = {"dockerd": ("dockerd", "--version")}
    return {
        "Python": platform.python_version(),
        **{name: version(name) for name in ("imgbuild", "jinja2", "uv")},
        **{name: _said(command) for name, command in programs.items() if shutil.which(command[0])},
    }


def _said(command: tuple[str, ...]) -> str:
    """Return the version in the first line that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
    return found[0] if found else "unknown"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number
