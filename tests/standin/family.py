"""`python -m standin.family`: the documented images, built and tested on stand-in upstreams.

Prints a table: what was built, how many steps its Dockerfile has (a finished build has executed
each, or shares it with an image that did), which suites passed, what was skipped and why.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.project import Project, find_project
from imgbuild.text import aligned
from standin.__main__ import gateway, open_context, prepare
from standin.context import HERE
from standin.server import serve

#: One image a corner of operating system, MPI flavour and variant, as options of the command.
CORNERS = (
    ("--cpu", "--tf", "1.13", "--tf", "1.14"),
    ("--gpu", "--tf", "1.12", "--tf", "2.3"),
)
EVERYTHING = (("--all",),)
_STEP = re.compile(r"^(RUN|COPY) ", re.MULTILINE)


@dataclass(frozen=True)
class Family:
    """A build on the stand-ins: its settings file and the folder for reports."""

    project: Project
    settings: Path
    reports: Path

    def build(self, *selection: str) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit status of one `imgbuild build`, and what it says of each image."""
        command = [
            *(sys.executable, "-c", "from imgbuild.cli import main; main()"),
            *("--settings", str(self.settings), "build", "--stack", "ubuntu", *selection),
            *("--keep-going", "--json", "--report", str(self.reports)),
        ]
        environment = {**os.environ, "XDG_STATE_HOME": str(self.reports / "state")}
        done = subprocess.run(
            command,
            cwd=self.project.root,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else []


def rows(outcomes: Iterable[dict[str, Any]], project: Project) -> list[tuple[str, ...]]:
    """Return the table: a row an image."""
    header = ("image", "state", "size", "build", "test", "steps", "suites passed", "skipped")
    return [header, *(_row(outcome, project) for outcome in outcomes)]


def skips(outcomes: Iterable[dict[str, Any]]) -> Counter[str]:
    """Return how many checks were skipped for each reason."""
    return Counter(skip["reason"] for outcome in outcomes for skip in _skipped(outcome))


def _row(outcome: dict[str, Any], project: Project) -> tuple[str, ...]:
    name = outcome["image"]
    dockerfile = project.dockerfiles / name / "Dockerfile"
    suites = (outcome["report"] or {"suites": ()})["suites"]
    passed = [suite["suite"] for suite in suites if suite["passed"] and not suite["failures"]]
    return (
        name,
        outcome["state"],
        f"{outcome['size'] / 1e6:.0f} MB",
        f"{outcome['build_seconds']:.0f} s",
        f"{outcome['test_seconds']:.0f} s",
        str(len(_STEP.findall(dockerfile.read_text(encoding="utf-8")))),
        " ".join(passed),
        str(len(list(_skipped(outcome)))),
    )


def _skipped(outcome: dict[str, Any]) -> Iterator[dict[str, str]]:
    for suite in (outcome["report"] or {"suites": ()})["suites"]:
        yield from suite["skipped"]


def main() -> int:
    """Do what the command line says; return 1 if an image has no name."""
    parser = argparse.ArgumentParser(prog="python -m standin.family", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all twenty; default: four corners")
    parser.add_argument("--report", type=Path, help="where reports stay; default: nowhere")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="imgbuild-standin-") as folder:
        return run(EVERYTHING if arguments.all else CORNERS, Path(folder), arguments.report)


def run(selections: Sequence[Sequence[str]], folder: Path, reports: Path | None) -> int:
    """Build the selections on stand-ins laid out in ``folder``; print the table."""
    project = find_project(HERE.resolve())
    context = open_context(project)
    address = gateway(context)
    with serve(folder, address) as server:
        settings = prepare(context, folder, server.url)
        family = Family(project, settings, (reports or folder / "reports").resolve())
        done = [family.build(*selection) for selection in selections]
    outcomes = [outcome for _, found in done for outcome in found]
    lines = aligned(rows(outcomes, project))
    lines += [f"skipped {count} times: {reason}" for reason, count in skips(outcomes).items()]
    print("\n".join(lines))  # noqa: T201 - a command's answer
    return int(any(status for status, _ in done))


if __name__ == "__main__":
    sys.exit(main())
