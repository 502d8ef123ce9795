"""Programs, time limits, the machine, and what is printed."""

import io
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from imgbuild.doctor.concurrently import NoAnswerError, Question, within
from imgbuild.doctor.finding import Finding, Status, fine
from imgbuild.doctor.machine import read_machine
from imgbuild.doctor.programs import RealPrograms
from imgbuild.doctor.show import show

LONG = "apt-get install -y " + " ".join(f"package-{number}" for number in range(40))
ROWS = (fine("engine", "28.5"), Finding(Status.MISSING, "base", "nothing here", LONG))


def test_a_program_and_its_output() -> None:
    code = "import os, sys; print(sys.stdin.read() + os.environ['WORD']); sys.exit(3)"
    command = [sys.executable, "-S", "-c", code]
    outcome = RealPrograms().run(command, timeout=10, env={"WORD": "two"}, stdin="one ")
    assert (outcome.code, outcome.ok, outcome.last()) == (3, False, "one two")


def test_a_program_that_takes_too_long_is_ended_with_its_children() -> None:
    started = time.monotonic()
    outcome = RealPrograms().run(["sh", "-c", "sleep 60 & sleep 60"], timeout=0.1)
    assert outcome.code == 124
    assert time.monotonic() - started < 5


def test_a_program_that_is_not_there() -> None:
    assert RealPrograms().run(["/nowhere/program"], timeout=1).code == 127
    assert RealPrograms().find("no-such-program-anywhere") is None


def test_a_question_is_not_waited_for() -> None:
    with pytest.raises(NoAnswerError):
        within(0.01, lambda: time.sleep(0.5))
    assert within(5, lambda: 7) == 7


def test_an_error_comes_back_to_who_asked() -> None:
    def fail() -> None:
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        Question(fail).answer()


@pytest.mark.parametrize(
    ("text", "family", "codename"),
    [
        ('ID=debian\nVERSION_CODENAME="bookworm"\n', "debian", "bookworm"),
        ("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n", "ubuntu", "noble"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "ubuntu", ""),
        ("ID=fedora\n", "other", ""),
    ],
)
def test_which_system_this_is(tmp_path: Path, text: str, family: str, codename: str) -> None:
    path = tmp_path / "os-release"
    path.write_text(text)
    machine = read_machine(path)
    assert (machine.family, machine.codename) == (family, codename)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_mending_command_is_never_cut(terminal: bool) -> None:
    out = io.StringIO()
    show(ROWS, Console(file=out, width=40, force_terminal=terminal, no_color=True))
    text = out.getvalue()
    assert LONG in text
    assert "✓" in text
    assert "✗" in text
    assert ("\x1b" in text) <= terminal
