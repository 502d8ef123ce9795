"""Who waits for a place to compile says so, in the words that imgbuild goes by."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from imgbuild.engine.bake import GOES_ON, WAITS
from imgbuild.project import Project


@pytest.fixture
def program(project: Project, tmp_path: Path) -> str:
    """Return what a step runs, with its places in the test's folder."""
    (tmp_path / "places").mkdir()
    text = (project.files / "compiling.sh").read_text(encoding="utf-8")
    assert "/run/places/" in text
    return text.replace("/run/places/", f"{tmp_path}/places/")


@contextmanager
def _compiling(program: str, then: str) -> Iterator[subprocess.Popen[str]]:
    """Give a step that says how many jobs it has, and goes on to ``then``; killed at the end."""
    script = f'set -eu\n{program}\necho "$JOBS"\n{then}'
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True) as step:
        try:
            yield step
        finally:
            step.kill()


def _line(step: subprocess.Popen[str]) -> str:
    assert step.stdout is not None
    return step.stdout.readline().rstrip("\n")


def test_two_compile_at_once_and_the_third_says_that_it_waits(program: str) -> None:
    with ExitStack() as stack:
        holders = [stack.enter_context(_compiling(program, "exec sleep 600")) for _ in range(2)]
        for holder in holders:
            assert int(_line(holder)) >= 1  # without a word before
        with _compiling(program, "") as third:
            # One that is mute would wait for ever.
            rescue = threading.Timer(30, holders[0].kill)
            stack.callback(rescue.cancel)
            rescue.start()
            assert _line(third) == WAITS
            holders[0].kill()
            said, _ = third.communicate(timeout=60)
    *waiting, goes_on, jobs = said.splitlines()
    assert {*waiting} <= {WAITS}
    assert goes_on == GOES_ON
    assert int(jobs) >= 1
    assert third.returncode == 0
