"""What imgbuild started ends when imgbuild is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild import process
from imgbuild.process import dies_with_parent

if TYPE_CHECKING:
    import pytest

_PROGRAM = """\
import os, sys
from imgbuild.process import start
with start(["sh", "-c", "echo $$; sleep 60"]) as process:
    print(process.stdout.readline(), end="", flush=True)
    process.wait()
"""


def _runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_program_ends_with_a_killed_imgbuild() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as imgbuild:
        assert imgbuild.stdout
        pid = int(imgbuild.stdout.readline())
        assert _runs(pid)
        imgbuild.kill()
    for _ in range(100):
        if not _runs(pid):
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


def test_without_setpriv_the_command_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_setpriv", lambda: None)
    assert dies_with_parent(("true",)) == ["true"]
