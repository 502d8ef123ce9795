"""`python -m standin.family`: the documented images, built and tested on stand-in upstreams."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.core.project import Project
from standin.__main__ import gateway, open_context, prepare
from standin.context import HERE
from standin.server import serve

#: One image a corner of operating system, MPI flavour and variant, as options of the command.
CORNERS = (
    ("--cpu", "--tf", "1.13", "--tf", "1.14"),
    ("--gpu", "--tf", "1.12", "--tf", "2.3"),
)


@dataclass(frozen=True)
class Family:
    """A build on the stand-ins: its settings file and the folder for reports."""

    project: Project
    settings: Path
    reports: Path

    def build(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run one `imgbuild build`; its messages are shown."""
        command = [
            *(sys.executable, "-c", "from imgbuild.cli import main; main()"),
            *("--settings", str(self.settings), "build", "--stack", "ubuntu", *options),
            *("--keep-going", "--report", str(self.reports)),
        ]
        return subprocess.run(
            command,
            cwd=self.project.root,
            env={**os.environ, "XDG_STATE_HOME": str(self.reports / "state")},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )

    def outcomes(self, *selection: str) -> list[dict[str, Any]]:
        return list(json.loads(self.build(*selection, "--json").stdout or "[]"))


def main() -> int:
    """Do what the command line says; return 1 if an image has no name."""
    parser = argparse.ArgumentParser(prog="python -m standin.family", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all twenty; default: four corners")
    parser.add_argument("--report", type=Path, help="where reports stay; default: nowhere")
    arguments = parser.parse_args()
    project = Project(HERE.resolve().parents[1])
    context = open_context(project)
    with tempfile.TemporaryDirectory(prefix="imgbuild-standin-") as name:
        folder = Path(name)
        with serve(folder, gateway(context)) as server:
            reports = (arguments.report or folder / "reports").resolve()
            family = Family(project, prepare(context, folder, server.url), reports)
            done = [family.build(*one) for one in ((("--all",),) if arguments.all else CORNERS)]
    print("\n".join(one.stdout for one in done))  # noqa: T201 - a command's answer
    return int(any(one.returncode for one in done))


if __name__ == "__main__":
    sys.exit(main())
