"""Run `imgbuild.adopt.run_entry` and `run_notebook` as local processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from imgbuild.adopt import run_entry
from imgbuild.adopt.program_container import NOTEBOOK, SUPERVISOR

MARK = "0123abcd"


class Ran(NamedTuple):
    code: int
    output: str
    errors: str
    events: Mapping[str, Mapping[str, Any]]


class Runner(NamedTuple):
    """A runner of programs whose files are in one folder."""

    folder: Path

    def run(  # noqa: PLR0913 - the settings
        self,
        *arguments: str,
        python: str = sys.executable,
        program: str = "main.py",
        module: str = "",
        roots: Sequence[str] = (),
        folder: str = "",
        seconds: float = 20,
        import_seconds: float = 20,
        path: str = "",
    ) -> Ran:
        code = self.folder / "code"
        settings = {
            "child": NOTEBOOK if program.endswith(".ipynb") else SUPERVISOR,
            "program": str(code / program),
            "module": module,
            "arguments": arguments,
            "folder": str(code / folder),
            "roots": [str(code / root) for root in roots],
            "code": [str(code)],
            "seconds": seconds,
            "import_seconds": import_seconds,
        }
        settings_file = self.folder / "settings.json"
        settings_file.write_text(json.dumps(settings))
        environment = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
        ran = subprocess.run(
            [python, run_entry.__file__, "supervise", MARK, str(settings_file)],
            capture_output=True,
            check=False,
            env=environment,
            timeout=50,
        )
        errors, reports = split_reports(ran.stderr)
        events = {report["event"]: report for report in reports}
        return Ran(ran.returncode, ran.stdout.decode(), errors, events)

    def write(self, files: Mapping[str, str]) -> "Runner":
        for name, text in files.items():
            path = self.folder / "code" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return self


def split_reports(errors: bytes) -> tuple[str, list[dict[str, Any]]]:
    pattern = rb"\x1e" + MARK.encode() + rb"([+.])([^\x1e]*)\x1e"
    pieces = re.findall(pattern, errors)
    text = b"".join(piece + (b"\n" if sign == b"." else b"") for sign, piece in pieces)
    reports = [json.loads(line) for line in text.splitlines()]
    return re.sub(pattern, b"", errors).decode(), reports
