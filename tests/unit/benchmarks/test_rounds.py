"""Interleaving, and that a run which failed is never counted as a time."""

import sys
from pathlib import Path

import pytest
from benchmarks.process import Run, run
from benchmarks.rounds import Contestant, WrongResultError, compare, orders
from benchmarks.samples import Samples, ratio

FINE = [sys.executable, "-c", "pass"]
FAILS = [sys.executable, "-c", "print('no room'); raise SystemExit(7)"]


def sample(name: str, *walls: float, code: int = 0) -> Samples:
    return Samples(name, tuple(Run(code, wall, wall / 2) for wall in walls))


def test_rounds_alternate_their_order() -> None:
    a, b, c = (Contestant(name, FINE) for name in "ABC")
    names = [[one.name for one in order] for order in orders([a, b, c], 3)]
    assert names == [["A", "B", "C"], ["C", "B", "A"], ["A", "B", "C"]]


def test_warm_ups_are_not_counted(tmp_path: Path) -> None:
    (found,) = compare([Contestant("fine", FINE)], 2, tmp_path, warmups=3)
    assert found.ok
    assert len(found.runs) == 2


def test_a_failed_run_has_no_time_and_is_not_repeated(tmp_path: Path) -> None:
    fine, failed = compare([Contestant("fine", FINE), Contestant("x", FAILS)], 2, tmp_path)
    assert fine.median() is not None
    assert not failed.ok
    assert failed.median() is None
    assert failed.error is not None
    assert "exit code 7: no room" in failed.error
    assert ratio(failed, fine) is None
    assert ratio(fine, failed) is None
    assert len(list(tmp_path.glob("x-*.log"))) == 1


def test_a_wrong_result_is_a_failure_though_the_exit_code_is_0(tmp_path: Path) -> None:
    def wrong(_: int) -> None:
        raise WrongResultError("there is no image")

    (found,) = compare([Contestant("quick", FINE, check=wrong)], 1, tmp_path)
    assert not found.ok
    assert found.median() is None
    assert found.error == "there is no image"


def test_one_bad_run_spoils_the_other_runs_of_its_contestant() -> None:
    mixed = Samples("mixed", (Run(0, 1.0, 1.0), Run(1, 0.01, 0.01)))
    assert mixed.values("wall") == []
    assert mixed.median() is None


def test_figures_of_the_check_are_kept(tmp_path: Path) -> None:
    (found,) = compare([Contestant("fine", FINE, check=lambda n: {"bytes": n})], 3, tmp_path)
    assert found.median("bytes") == 2


def test_preparation_comes_before_every_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = [sys.executable, "-c", f"import os; os.remove({str(mark)!r})"]
    contestant = Contestant("needs its mark", command, prepare=lambda _: mark.touch())
    (found,) = compare([contestant], 2, tmp_path)
    assert found.ok


def test_the_median_is_that_of_the_ratios_of_the_rounds() -> None:
    # The machine became slower by the second round, for both.
    assert ratio(sample("a", 1, 10, 4), sample("b", 2, 20, 4)) == pytest.approx(0.5)


def test_the_memory_of_the_tree_is_watched(tmp_path: Path) -> None:
    code = "import time; held = b'x' * 60_000_000; time.sleep(0.5)"
    found = run([sys.executable, "-c", code], tmp_path / "log", watch=0.01)
    assert found.peak is not None
    assert 60e6 < found.peak < 120e6
