"""Exit codes, the results file, and what an engine of one's own asks of the machine."""

import json
import os
import sys
from pathlib import Path

import pytest
from benchmarks import engine
from benchmarks.command import MissingError, Setting, main
from benchmarks.process import Run
from benchmarks.results import Goal, Result, Section, command_line, read_all
from benchmarks.samples import Samples


def outcome(code: int) -> Result:
    one = Samples("one", (Run(code, 1.0, 1.0),))
    goal = Goal("one", 2, one.median(), "s")
    return Result("render_matrix", [Section("One", "| a |")], [goal], [one])


def started(result: Result | Exception, path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    def measure(_: Setting) -> Result:
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(sys, "argv", ["benchmark", "--json", str(path)])
    with pytest.raises(SystemExit) as stopped:
        main("render_matrix", "About.", measure, rounds=(1, 1))
    return stopped.value.code


def test_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(outcome(0), tmp_path / "render_matrix.json", monkeypatch) == 0
    found = read_all(tmp_path)["render_matrix"]
    assert found["ok"] is True
    assert found["goals"][0]["met"] is True
    assert found["samples"][0]["figures"]["wall"] == [1.0]
    assert "HOME" not in json.dumps(found["machine"])


def test_a_failed_contestant_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert started(outcome(5), tmp_path / "render_matrix.json", monkeypatch) == 1
    found = read_all(tmp_path)["render_matrix"]
    assert found["ok"] is False
    assert found["goals"][0]["met"] is None
    assert found["samples"][0]["figures"] == {}


def test_a_missing_prerequisite_is_exit_code_3_and_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = MissingError("there is no docker client")
    assert started(missing, tmp_path / "x.json", monkeypatch) == 3
    assert "there is no docker client" in capsys.readouterr().err
    assert read_all(tmp_path) == {}


def test_the_recorded_command_names_nothing_of_this_machine() -> None:
    words = [
        "--work",
        "/somewhere",
        "--rounds",
        "3",
        "--engine=unix:///x",
        "--engine-pid",
        "7",
        "-x",
    ]
    assert command_line("family", words) == "python -m benchmarks.family --rounds 3 -x"


def test_an_engine_is_started_by_root_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingError, match="--engine"):
        engine._require()


def test_what_is_added_to_the_network_is_taken_away() -> None:
    added = [w for w in engine._network_commands("add") if w[0] == "iptables"]
    removed = [w for w in engine._network_commands("delete") if w[0] == "iptables"]
    assert [["-D" if word == "-I" else word for word in words] for words in added] == removed
    assert ["ip", "link", "delete", engine.BRIDGE] in engine._network_commands("delete")
