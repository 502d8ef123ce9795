"""Tables, goals, and the page that is filled from the results."""

from typing import Any

import pytest
from benchmarks.process import Run
from benchmarks.report import PAGE, filled, goals_table
from benchmarks.results import ROOT, Goal
from benchmarks.samples import Samples
from benchmarks.table import seconds, table, times, timing_table

PAGE_TEXT = (
    "Goals:\n<!-- goals -->\nold\n<!-- end -->\nRead:\n<!-- family -->\n<!-- end -->\nEnd.\n"
)


def document(**changed: Any) -> dict[str, Any]:
    goal = {"text": "family", "aim": "≤ 0.5 ×", "limit": 0.5, "measured": 0.6, "unit": "×"}
    return {
        "command": "python -m benchmarks.family",
        "ok": True,
        "time": "2026-11-21T10:00:00Z",
        "revision": "abc",
        "machine": {
            "processors": 2,
            "model": "a processor",
            "memory_mb": 8000,
            "system": "a system",
            "kernel": "6.1",
        },
        "versions": {"imgbuild": "0.1.0"},
        "goals": [{**goal, "met": False, "at_least": False}],
        "sections": [{"title": "The family", "table": "| a |", "notes": ["A note."]}],
        **changed,
    }


def test_columns_are_aligned() -> None:
    assert table(["", "s"], [["long name", "1"]]) == (
        "|           | s |\n|-----------|---|\n| long name | 1 |"
    )


def test_a_failed_contestant_says_so_in_the_table() -> None:
    good = Samples("good", (Run(0, 2.0, 1.0),))
    bad = Samples("bad", (Run(1, 0.01, 0.01),), "exit code 1")
    text = timing_table([good, bad], good)
    assert "| bad  | failed |" in text
    assert "0.01" not in text


def test_figures_that_nobody_has_get_no_column() -> None:
    one = Samples("one", (Run(0, 2.0, 1.0),))
    assert "peak" not in timing_table([one], one)
    watched = Samples("one", (Run(0, 2.0, 1.0, peak=50_000_000),))
    assert "| 50 " in timing_table([watched], watched)


def test_numbers_have_the_digits_that_mean_something() -> None:
    assert [seconds(v) for v in (0.123, 12.34, 123.4, None)] == ["0.12", "12.3", "123", "–"]
    assert [times(v) for v in (1.234, 15.67, None)] == ["1.23", "15.7", "–"]


def test_a_goal_is_met_on_its_side() -> None:
    assert Goal("time", 0.5, 0.5, "s").met is True
    assert Goal("time", 0.5, 0.51, "s").met is False
    assert Goal("speed", 3, 2.9, "×", at_least=True).met is False
    assert Goal("speed", 3, None, "×", at_least=True).met is None
    assert Goal("speed", 3, 4, "×", at_least=True).aim == "≥ 3 ×"


def test_the_page_is_filled_between_its_marks_only() -> None:
    text = filled(PAGE_TEXT, {"family": document()})
    assert "old" not in text
    assert "**missed**" in text
    assert "| a |" in text
    assert text.startswith("Goals:\n<!-- goals -->\n")
    assert text.endswith("<!-- end -->\nEnd.\n")
    assert filled(text, {"family": document()}) == text


def test_a_failed_benchmark_is_said_on_the_page() -> None:
    assert "A contestant failed" in filled(PAGE_TEXT, {"family": document(ok=False)})


def test_results_without_a_place_are_refused() -> None:
    with pytest.raises(ValueError, match="no block for growth"):
        filled(PAGE_TEXT, {"growth": document()})


def test_a_goal_without_a_figure_is_not_met() -> None:
    goal = {"text": "x", "aim": "≤ 1", "limit": 1, "measured": None, "unit": "s", "met": None}
    assert "not measured" in goals_table({"family": document(goals=[goal])})


def test_the_real_page_has_a_block_for_every_benchmark() -> None:
    from benchmarks.__main__ import NAMES

    text = PAGE.read_text(encoding="utf-8")
    filled(text, {name: document(goals=[]) for name in NAMES})
    assert all((ROOT / "benchmarks" / f"{name}.py").is_file() for name in NAMES)
