"""The runner of programs, as a local process of several Pythons."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from imgbuild.adopt import run_entry
from support.program_runner import MARK, Runner

#: The Pythons of images that this machine has, and this one.
FOUND = sorted(map(str, Path.home().glob(".pyenv/versions/3.[678].*/bin/python")))
PYTHONS = [sys.executable, *FOUND]
EVERY_PYTHON = pytest.mark.parametrize("python", PYTHONS, ids=lambda path: Path(path).parts[-3])
#: This Python and the oldest.
TWO_PYTHONS = pytest.mark.parametrize("python", PYTHONS[:2], ids=lambda path: Path(path).parts[-3])


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@EVERY_PYTHON
def test_run_is_as_pythons_own(runner: Runner, python: str) -> None:
    text = (
        '"""Text."""\nfrom __future__ import division\nimport os, sys\n\n'
        "print(__name__, __file__, sys.argv, sys.path[0], __doc__, os.getcwd(), __package__)\n"
        "print(sorted(globals()), sys.stdin.read() == '')\nraise ValueError('bad')\n"
    )
    runner.write({"src/main.py": text})
    ran = runner.run("a", "b c", python=python, program="src/main.py")
    command = [python, "src/main.py", "a", "b c"]
    plain = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=runner.folder / "code",
        stdin=subprocess.DEVNULL,
    )
    assert (ran.output, ran.errors, ran.code) == (plain.stdout, plain.stderr, plain.returncode)


@EVERY_PYTHON
def test_run_reports_imports_and_error(runner: Runner, python: str) -> None:
    runner.write({"main.py": "import json\nimport part\npart.work()\n"})
    runner.write({"part.py": "def work():\n    open('none.txt')\n"})
    ran = runner.run(python=python)
    assert "imports" in ran.events
    error = ran.events["error"]
    assert error["classes"][0] == "FileNotFoundError"
    assert error["filename"] == "none.txt"
    path = str(runner.folder / "code" / "part.py")
    assert error["frames"][-1] == [path, 2, "work", "open('none.txt')"]
    assert ran.events["ended"]["code"] == ran.code == 1


@EVERY_PYTHON
def test_run_of_a_module_is_as_pythons_own(runner: Runner, python: str) -> None:
    text = (
        "from . import part\nimport sys\n"
        "print(__name__, __package__, __spec__.name, sys.argv, sys.path[0], __file__)\n"
    )
    runner.write({"pack/__init__.py": "", "pack/part.py": "", "pack/__main__.py": text})
    ran = runner.run("x", python=python, module="pack")
    plain = subprocess.run(
        [python, "-m", "pack", "x"],
        capture_output=True,
        text=True,
        check=True,
        cwd=runner.folder / "code",
    )
    # Python 3.6 writes the folder of `-m` as an empty text.
    here = str(runner.folder / "code")
    assert ran.output.replace(f" {here} ", "  ") == plain.stdout.replace(f" {here} ", "  ")
    assert "imports" in ran.events


@TWO_PYTHONS
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_run_lets_programs_start_processes(runner: Runner, python: str, method: str) -> None:
    text = (
        "import multiprocessing\n\n\ndef double(x):\n    return 2 * x\n\n\n"
        'if __name__ == "__main__":\n'
        f"    with multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n"
    )
    ran = runner.write({"main.py": text}).run(python=python)
    assert ran.output == "[2, 4]\n"
    assert ran.code == 0


@EVERY_PYTHON
def test_limit_counts_from_the_imports(runner: Runner, python: str) -> None:
    text = "import time\nwhile True:\n    time.sleep(0.1)\n"
    ran = runner.write({"main.py": text}).run(python=python, seconds=0.5)
    limit = ran.events["limit"]
    assert limit["imports"] is True
    assert limit["importing"] is False
    assert limit["stack"][0][1] in {2, 3}


@TWO_PYTHONS
def test_limit_tells_imports_of_others(runner: Runner, python: str, tmp_path: Path) -> None:
    """A package that is slow to import, also if the program's own imports are done."""
    slow = "import time\nwhile True:\n    time.sleep(0.1)\n"
    (other := tmp_path / "other").mkdir()
    (other / "slow_package.py").write_text(slow)
    runner.write({"main.py": "import sys\ndef work():\n    import slow_package\nwork()\n"})
    ran = runner.run(python=python, roots=[str(other)], seconds=0.2, import_seconds=1)
    assert ran.events["limit"]["imports"] is True
    assert ran.events["limit"]["importing"] is True


def test_limit_knows_a_program_that_runs_by_import(runner: Runner) -> None:
    text = "import time\nwhile True:\n    time.sleep(0.1)\n"
    runner.write({"main.py": "import training\n", "training.py": text})
    limit = runner.run(seconds=0.2, import_seconds=0.5).events["limit"]
    assert (limit["imports"], limit["importing"]) == (False, False)
    assert limit["stack"][0][0].endswith("/training.py")


@pytest.mark.parametrize(
    "text",
    [
        "print(1)\nimport json\nprint('MARK')",
        "try:\n    import none\nexcept ImportError:\n    import json\nprint('MARK')",
        "if True:\n    import json\n    print('MARK')",
        "if False:\n    import json\nprint('MARK')",
        "import json\nif __name__ == '__main__':\n    import re\n    print('MARK')",
        "def work():\n    import re\nprint('MARK')",
        "for name in 'ab':\n    import json\n    print('MARK')",
        "with open(__file__):\n    import json\n    print('MARK')",
        "class A:\n    import json\nprint('MARK')",
        "print('MARK')",
    ],
)
def test_marker_is_after_the_last_import(runner: Runner, text: str) -> None:
    """Let the program print a mark of its own, which comes after the report."""
    text = text.replace("print('MARK')", "open(2, 'wb', closefd=False).write(b'OWN')")
    (runner.folder / "code").mkdir()
    (runner.folder / "code" / "main.py").write_text(f"{text}\nimport time\n")
    code = run_entry.compile_program(f"{text}\n".encode(), "main.py")
    events: list[str] = []

    class Out:
        def write(self, _: bytes) -> None:
            events.append("own")

    names = {
        "__name__": "__main__",
        "__file__": __file__,
        "open": lambda *words, **_: Out() if words[0] == 2 else open(words[0]),  # noqa: PTH123, SIM115
        run_entry.MARKER: lambda: events.append("imports"),
    }
    exec(code, names)  # noqa: S102
    assert "own" in events
    assert events.index("imports") < events.index("own")


@pytest.mark.parametrize(
    "text", ["import json\nopen('x')\nimport re", "import a.b\nopen('x')\nimport re"]
)
def test_marker_waits_for_the_last_import(text: str) -> None:
    code = run_entry.compile_program(text.encode(), "main.py")
    events: list[str] = []
    names = {"open": lambda _: events.append("own"), run_entry.MARKER: lambda: events.append("m")}
    names["__builtins__"] = {"__import__": lambda *_: events.append("import"), **names}  # type: ignore[assignment]
    exec(code, names)  # noqa: S102
    assert events == ["import", "own", "import", "m"]


def test_marker_adds_no_name_and_no_line() -> None:
    text = "'''Text.'''\nimport json\n\nnumber = 1\n"
    names: dict[str, Any] = {"__builtins__": {run_entry.MARKER: list, "__import__": __import__}}
    code = run_entry.compile_program(text.encode(), "main.py")
    exec(code, names)  # noqa: S102
    assert names.keys() == {"__builtins__", "__doc__", "json", "number"}
    lines = {line for _, _, line in code.co_lines() if line}
    plain = {line for _, _, line in compile(text, "main.py", "exec").co_lines() if line}
    assert lines == plain


@TWO_PYTHONS
def test_own_modules_hide_those_of_the_runner(runner: Runner, python: str) -> None:
    runner.write({"main.py": "import json, subprocess\nprint(json.WORD, subprocess.WORD)\n"})
    runner.write({"json.py": "WORD = 1\n", "lib/subprocess.py": "WORD = 2\n"})
    ran = runner.run(python=python, roots=["lib"])
    assert ran.output == "1 2\n"


def test_modules_that_python_needs_stay(runner: Runner) -> None:
    runner.write({"main.py": "import io\nprint(hasattr(io, 'WORD'))\n", "io.py": "WORD = 1\n"})
    assert runner.run().output == "False\n"


def test_hidden_causes_are_not_reported(runner: Runner) -> None:
    text = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('x')"
    (cause,) = runner.write({"main.py": f"{text}\n"}).run().events["error"]["causes"]
    assert cause[0] == "ZeroDivisionError"
    hidden = runner.write({"main.py": f"{text} from None\n"}).run()
    assert hidden.events["error"]["causes"] == []


def test_files_of_a_program_have_a_limit(runner: Runner) -> None:
    text = f"open('large', 'wb').truncate({run_entry.LARGEST_FILE + 1})\n"
    ran = runner.write({"main.py": text}).run()
    assert ran.events["error"]["errno"] == errno.EFBIG


@pytest.mark.parametrize(
    ("free", "written"),
    [
        ([100 << 30, 99 << 30, 91 << 30], 8 << 30),
        ([4 << 30, (2 << 30) + 1, 2 << 30, (2 << 30) - 1], 2 << 30),
    ],
    ids=["large disk", "small disk"],
)
def test_program_that_fills_the_disk_is_stopped(
    monkeypatch: pytest.MonkeyPatch, free: list[int], written: int
) -> None:
    """It may write 8 GiB, or the half of what is free."""
    answers = iter(free)
    monkeypatch.setattr(run_entry, "free_bytes", lambda: next(answers))
    told: list[dict[str, object]] = []
    monkeypatch.setattr(run_entry, "emit", lambda _, report: told.append(report))
    reading, writing = os.pipe()
    settings = {"seconds": 20, "import_seconds": 20, "code": []}
    with subprocess.Popen(["sleep", "20"]) as process:
        run_entry.watch(process, reading, MARK, settings, time.monotonic())
        process.kill()
    os.close(reading)
    os.close(writing)
    assert next(answers, None) is None
    assert [(report["event"], report["written"]) for report in told] == [("limit", written)]


def test_limit_waits_for_imports_of_others(runner: Runner, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (other / "slow_package.py").write_text("import time\ntime.sleep(1)\n")
    runner.write({"main.py": "import sys\ndef work():\n    import slow_package\nwork()\n"})
    ran = runner.run(roots=[str(other)], seconds=0.2)
    assert "limit" not in ran.events
    assert ran.events["ended"]["code"] == 0


def test_pipe_of_the_child_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_entry, "CHILD_BYTES", 10)
    reading, writing = os.pipe()
    pipe = run_entry._ChildPipe(reading)
    for expected in ([{"event": "imports"}], []):
        os.write(writing, b'{"event": "imports"}\n')
        assert pipe.reports(0.1) == expected
    os.close(reading)
    os.close(writing)


def test_roots_reach_child_processes(runner: Runner) -> None:
    text = "import subprocess, sys\nsubprocess.check_call([sys.executable, '-c', 'import own'])\n"
    runner.write({"main.py": text, "lib/own.py": "print('own')\n"})
    assert runner.run(roots=["lib"]).output == "own\n"


@TWO_PYTHONS
def test_exit_codes_are_the_programs(runner: Runner, python: str) -> None:
    runner.write({"main.py": "import sys\nsys.exit(7)\n"})
    ran = runner.run(python=python)
    assert ran.code == 7
    assert ran.events["error"]["code"] == 7
    assert runner.write({"main.py": "raise SystemExit('no data')\n"}).run(python=python).code == 1
    ended = runner.write({"main.py": "raise SystemExit\n"}).run(python=python)
    assert (ended.code, ended.errors, "error" in ended.events) == (0, "", False)


def test_exit_without_handlers_is_reported(runner: Runner) -> None:
    ran = runner.write({"main.py": "import os\nos._exit(3)\n"}).run()
    assert ran.code == ran.events["ended"]["code"] == 3


@TWO_PYTHONS
def test_crash_has_signal_and_place(runner: Runner, python: str) -> None:
    text = "import os, signal\n\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    ended = runner.write({"main.py": text}).run(python=python).events["ended"]
    assert ended["code"] == -signal.SIGSEGV
    assert ended["stack"][0][1] == 3


@TWO_PYTHONS
def test_syntax_errors_have_their_place(runner: Runner, python: str) -> None:
    ran = runner.write({"main.py": "import json\nprint 1\n"}).run(python=python)
    assert ran.code == 1
    assert ran.events["error"]["frames"][-1][1] == 2
    assert "run_entry" not in ran.errors


def test_excepthook_of_the_program_is_called(runner: Runner) -> None:
    text = "import sys\nsys.excepthook = lambda *words: print('hook', words[0].__name__)\n1 / 0\n"
    assert runner.write({"main.py": text}).run().output == "hook ZeroDivisionError\n"


def test_threads_and_exit_handlers_end_first(runner: Runner) -> None:
    text = (
        "import atexit, threading, time\natexit.register(print, 'exit')\n"
        "def work():\n    time.sleep(0.3)\n    print('thread')\n"
        "threading.Thread(target=work).start()\n"
    )
    assert runner.write({"main.py": text}).run().output == "thread\nexit\n"


def test_children_report_nothing(runner: Runner) -> None:
    text = "import os\nif os.fork() == 0:\n    raise ValueError\nos.wait()\n"
    ran = runner.write({"main.py": text}).run()
    assert ran.code == 0
    assert "error" not in ran.events


def test_reports_are_found_between_output(runner: Runner) -> None:
    """The program writes errors without an end of line, and long messages."""
    text = "import os\nos.write(2, b'begin ')\nraise ValueError('x' * 5000 + chr(30) + chr(0xe4))\n"
    ran = runner.write({"main.py": text}).run()
    assert ran.errors.startswith("begin Traceback")
    assert ran.events["error"]["message"] == "x" * run_entry.TEXT_LENGTH


def test_missing_module_is_no_traceback_of_the_runner(runner: Runner) -> None:
    ran = runner.write({"main.py": ""}).run(module="none.part")
    assert ran.events["error"]["message"] == "No module named 'none'"
    assert "run_entry" not in ran.errors


def test_texts_in_any_encoding_run(runner: Runner) -> None:
    (runner.folder / "code").mkdir()
    main = runner.folder / "code" / "main.py"
    main.write_bytes(b"\xef\xbb\xbfimport json\nprint('mark')\n")
    assert runner.run().output == "mark\n"
    main.write_bytes(b"# coding: latin-1\nimport json\nprint(ord('\xe4'))\n")
    assert runner.run().output == "228\n"


def test_stop_ends_the_program(runner: Runner) -> None:
    text = "import time\nprint('begin', flush=True)\ntime.sleep(60)\n"
    runner.write({"main.py": text})
    runner.run(seconds=0.1)
    command = [
        sys.executable,
        run_entry.__file__,
        "supervise",
        MARK,
        str(runner.folder / "settings.json"),
    ]
    settings = json.loads((runner.folder / "settings.json").read_text())
    (runner.folder / "settings.json").write_text(json.dumps({**settings, "seconds": 60}))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begin\n"
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM
        assert process.stdout.read() == b""  # its child has also ended
