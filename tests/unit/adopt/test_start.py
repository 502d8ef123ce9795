"""The outcome of a program by the reports of its container, and the start of the container."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.adopt import start as module
from imgbuild.adopt.closure import Closure, Entry
from imgbuild.adopt.failures import Start
from imgbuild.adopt.program_container import HOME, WORK, Program, ProgramRun
from imgbuild.adopt.repository import Evidence
from imgbuild.adopt.start import classify, program_variables, start_program

PROGRAM = Program(("docker",), "image:1", Path(), f"{WORK}/src/main.py", "1000:1000")
ENTRY = Entry("src/main.py", Evidence("README.md", 3), ("--x", "1"))


def judge(*reports: Mapping[str, Any], errors: str = "", output: str = "", code: int = 0) -> Start:
    return classify(ProgramRun(tuple(reports), output, errors, code), PROGRAM)


def ended(code: int, **facts: Any) -> Mapping[str, Any]:
    return {"event": "ended", "code": code, "seconds": 1.5, **facts}


def error(classes: str, message: str, *frames: list[Any], **facts: Any) -> Mapping[str, Any]:
    names = classes.split("/")
    return {"event": "error", "classes": names, "message": message, "frames": [*frames], **facts}


IMPORTS = {"event": "imports", "seconds": 0.5}


def test_classify_finished_and_running() -> None:
    done = judge(IMPORTS, ended(0))
    assert (done.outcome, done.line, done.seconds) == ("finished", "", 1.5)
    stack = [["/opt/x.py", 3, "f"], ["src/main.py", 9, "main"], [f"{WORK}/src/main.py", 20, "g"]]
    limit = {"event": "limit", "importing": False, "imports": True, "stack": stack}
    running = judge(IMPORTS, limit, output="epoch 1\nepoch 2\n")
    assert (running.outcome, running.place, running.line) == (
        *("running", "src/main.py:9"),
        "epoch 2",
    )


@pytest.mark.parametrize(
    ("importing", "imports", "stack", "outcome"),
    [
        (True, True, [["/opt/x.py", 1, "f"]], "fails"),
        (True, False, [["/opt/x.py", 1, "f"]], "fails"),
        (False, False, [], "fails"),
        (False, True, [], "running"),
        (False, False, [[f"{WORK}/a.py", 1, "f"]], "running"),
        (None, "yes", "x", "fails"),
    ],
)
def test_classify_limit(importing: object, imports: object, stack: object, outcome: str) -> None:
    limit = {"event": "limit", "importing": importing, "imports": imports, "stack": stack}
    start = judge(limit)
    assert start.outcome == outcome
    assert start.reason == ("imports not finished" if outcome == "fails" else "")


def test_classify_a_program_that_fills_the_disk() -> None:
    start = judge(IMPORTS, {"event": "limit", "written": 8 << 30})
    assert (start.outcome, start.reason, start.line) == (
        *("fails", "disk"),
        "the engine's disk lost 8.0 GiB while it ran",
    )


def test_classify_names_module_and_place() -> None:
    frames = [
        [f"{WORK}/src/main.py", 2, "<module>", "import part"],
        [f"{WORK}/part.py", 7, "<module>", "import pandas"],
        ["/opt/python/x.py", 1, "f", ""],
    ]
    report = error("ModuleNotFoundError/ImportError", "No module named 'pandas'", *frames)
    start = judge(report, ended(1))
    assert (start.outcome, start.missing) == ("fails", "pandas")
    assert start.place == "part.py:7"
    assert start.source == "import pandas"
    assert start.package == ""
    assert start.line == "ModuleNotFoundError: No module named 'pandas'"


def test_classify_finds_the_place_in_own_files() -> None:
    frames = [["/packages/mine/part.py", 7, "f", ""], ["<string>", 1, "g", ""]]
    program = replace(PROGRAM, package_name="mine")
    ran = ProgramRun((error("ValueError", "bad", *frames), ended(1)))
    assert classify(ran, program).place == "part.py:7"


def test_classify_shows_paths_of_the_repository() -> None:
    report = error("FileNotFoundError/OSError", "", filename=f"{WORK}/data/x.txt", errno=2)
    start = judge(IMPORTS, report, ended(1))
    assert (start.outcome, start.reason, start.asked) == ("stops", "data", "data/x.txt")


def test_classify_usage_by_its_output() -> None:
    frames = [[f"{WORK}/src/main.py", 9, "m", ""], ["/usr/lib/argparse.py", 1, "exit", ""]]
    errors = "usage: main.py [-h] --data DATA\nmain.py: error: --data is required\n"
    start = judge(IMPORTS, error("SystemExit", "2", *frames, code=2), ended(2), errors=errors)
    assert (start.outcome, start.reason) == ("stops", "arguments")
    assert start.asked == start.line == "main.py: error: --data is required"
    assert start.place == "src/main.py:9"


def test_classify_exits_by_what_is_printed() -> None:
    code = error("SystemExit", "1", code=1)
    start = judge(code, ended(1), output="Cannot find the dataset in ./data\n")
    assert (start.outcome, start.reason, start.asked) == ("stops", "data", "./data")
    text = "Traceback (most recent call last):\n  File 'a.py', line 1\n".replace("'", '"')
    text += "ImportError: No module named x\n"
    start = judge(code, ended(1), errors=text)
    assert (start.outcome, start.missing) == ("fails", "x")
    message = error("SystemExit", "give a config", code="usage: main.py CONFIG")
    assert judge(message, ended(1)).reason == "arguments"
    silent = judge(ended(3))
    assert (silent.outcome, silent.reason, silent.line) == ("fails", "other", "exit code 3")


def test_classify_signals() -> None:
    crash = judge(ended(-11, stack=[[f"{WORK}/a.py", 4, "f"]]))
    assert (crash.outcome, crash.reason) == ("fails", "crash")
    assert (crash.place, crash.line) == ("a.py:4", "killed by SIGSEGV")
    assert judge(ended(-9, oom=True)).reason == "memory"
    assert judge(ended(-99)).reason == "crash"
    assert judge(code=137).reason == "memory"


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"event": []},
        {"event": "ended", "code": "x", "seconds": {}},
        {"event": "ended", "code": True},
        {"event": "limit", "stack": [[1, "x", None]]},
        {"event": "error", "classes": 3},
        {"event": "imports", "seconds": "x"},
    ],
)
def test_classify_accepts_any_report(report: Mapping[str, Any]) -> None:
    assert judge(report, code=1).outcome == "fails"


def test_classify_prints_no_control_characters() -> None:
    report = error("ValueError", "\x1b[2J bad\nsecond", [f"{WORK}/a\x1b.py", 1, "f", ""])
    start = judge(report, ended(1), errors="\x1b[31mred\n")
    assert "\x1b" not in json.dumps(vars(start), ensure_ascii=False)
    assert "\n" not in start.line


class Containers:
    """Containers that run nothing: their programs are noted, and their ends are given."""

    def __init__(self, *runs: ProgramRun) -> None:
        self.programs: list[Program] = []
        self._runs = [*runs]

    def run(self, program: Program, on_line: Callable[[str], None] | None = None) -> ProgramRun:
        self.programs.append(program)
        if on_line:
            on_line("line")
        return self._runs.pop(0)


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch) -> Containers:
    finished = ProgramRun((ended(0),))
    made = Containers(finished, finished)
    monkeypatch.setattr(module, "run_container", made.run)
    return made


def test_start_runs_in_the_root_with_roots(containers: Containers) -> None:
    closure = Closure(ENTRY, (), roots=("", "lib"), package_name="mine")
    lines: list[str] = []
    start = start_program(["docker"], "image:1", Path("x"), closure, on_line=lines.append)
    (program,) = containers.programs
    assert start.outcome == "finished"
    assert (program.path, program.folder) == (f"{WORK}/src/main.py", WORK)
    assert program.roots == (WORK, f"{WORK}/lib", "/packages")
    assert program.arguments == ("--x", "1")
    assert program.package_name == "mine"
    assert program.user.split(":")[0] != "0"
    assert not program.network
    assert lines == ["line"]


def test_start_takes_options(containers: Containers) -> None:
    closure = Closure(ENTRY, ())
    start_program(
        ["docker"],
        "image:1",
        Path("x"),
        closure,
        packages={"wandb": "0.9.4"},
        seconds=3,
        network=True,
        gpus="cdi",
    )
    (program,) = containers.programs
    assert program.variables["WANDB_MODE"] == "dryrun"
    assert program.seconds == 3
    assert program.network
    assert program.gpus == "cdi"


def test_start_tries_the_programs_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    report = error("FileNotFoundError/OSError", "", filename="conf/x.json", errno=2)
    names = frozenset({"src", "src/main.py", "src/conf/x.json"})
    made = Containers(ProgramRun((report, ended(1)), names=names), ProgramRun((ended(0),)))
    monkeypatch.setattr(module, "run_container", made.run)
    start = start_program(["docker"], "image:1", Path("x"), Closure(ENTRY, ()))
    assert [program.folder for program in made.programs] == [WORK, f"{WORK}/src"]
    assert (start.outcome, start.folder) == ("finished", "src")
    made = Containers(ProgramRun((report, ended(1)), names=names))
    monkeypatch.setattr(module, "run_container", made.run)
    as_module = Closure(replace(ENTRY, module="src.main"), ())
    assert start_program(["docker"], "image:1", Path("x"), as_module).outcome == "stops"


@pytest.mark.parametrize("asked", ["none.json", "/data/x", "../none", ""])
def test_start_tries_no_folder_for_other_files(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    report = error("FileNotFoundError/OSError", "", filename=asked, errno=2)
    names = frozenset({"src", "src/main.py", "x"})
    made = Containers(ProgramRun((report, ended(1)), names=names))
    monkeypatch.setattr(module, "run_container", made.run)
    start = start_program(["docker"], "image:1", Path("x"), Closure(ENTRY, ()))
    assert start.outcome == "stops"


def test_start_runs_a_notebook_in_its_folder(containers: Containers, tmp_path: Path) -> None:
    entry = Entry("demo/Train.ipynb", Evidence("demo/Train.ipynb"), is_notebook=True)
    start_program(["docker"], "image:1", tmp_path, Closure(entry, ()))
    (program,) = containers.programs
    assert program.is_notebook
    assert program.path == f"{WORK}/demo/Train.ipynb"
    assert program.folder == f"{WORK}/demo"


def test_variables_fit_old_wandb() -> None:
    assert program_variables({})["WANDB_MODE"] == "offline"
    assert program_variables({"wandb": "0.9.4"})["WANDB_MODE"] == "dryrun"
    assert program_variables({"wandb": "0.12.1"})["WANDB_MODE"] == "offline"
    assert program_variables({"wandb": "?"})["WANDB_MODE"] == "offline"
    assert program_variables({})["MPLBACKEND"] == "Agg"
    assert program_variables({})["HOME"] == HOME
