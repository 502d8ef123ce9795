"""Programs: what they print, how they end, and that they end with imgbuild."""

import os
import subprocess
import sys
import time

import pytest

from imgbuild.core.process import FLOODED, NOT_FOUND, TIMED_OUT, read_lines, run, start
from support.waiting import is_running, wait_for

_PROGRAM = """\
import os, sys
from imgbuild.core.process import start
with start(["sh", "-c", "echo $$; sleep 60"]) as process:
    print(process.stdout.readline(), end="", flush=True)
    process.wait()
"""


def test_a_program_ends_with_a_killed_imgbuild() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as imgbuild:
        assert imgbuild.stdout
        pid = int(imgbuild.stdout.readline())
        assert is_running(pid)
        imgbuild.kill()
    wait_for(lambda: not is_running(pid))


def test_output_and_errors_are_kept_apart() -> None:
    done = run(["sh", "-c", "cat; echo bad >&2; exit 3"], text="given")
    assert (done.code, done.output, done.errors, done.ok) == (3, "given", "bad\n", False)
    assert done.last() == "given | bad"
    done = run(["no-such-program"])
    assert (done.code, done.errors) == (NOT_FOUND, "no-such-program: not found")


def test_a_program_that_takes_too_long_ends_with_its_children() -> None:
    began = time.monotonic()
    done = run(["sh", "-c", "sleep 60 & sleep 60"], timeout=0.2)
    assert (done.code, done.errors) == (TIMED_OUT, "no answer within 0 s")
    assert time.monotonic() - began < 10


def test_what_ignores_sigterm_is_killed() -> None:
    with start(["sh", "-c", "trap '' TERM; echo $$; sleep 60"], grace=0.2) as started:
        assert started.stdout
        pid = int(started.stdout.readline())
    assert not is_running(pid)


def test_lines_come_as_they_are_printed() -> None:
    with start(["sh", "-c", "printf 'a\\nb'; sleep 0.3; printf c"]) as started:
        lines = list(read_lines(started, 0.1))
    assert [line for line in lines if line is not None] == ["a", "bc"]
    assert None in lines


@pytest.mark.parametrize("stream", ["1", "2"])
def test_what_prints_without_end_is_stopped(stream: str) -> None:
    finished = run(["sh", "-c", f"yes >&{stream}"], timeout=60)
    assert finished.code == FLOODED


def test_a_large_input_reaches_a_program_that_prints_meanwhile() -> None:
    text = "x" * 1_000_000
    assert run(["cat"], text=text, timeout=60).output == text
