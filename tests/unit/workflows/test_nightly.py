"""The parts of `make nightly`: all files, in equal times; what passed is noted."""

import json
import sys
from datetime import date

import pytest

from support import nightly
from support.project_copy import ROOT

FILES = nightly.nightly_files()
SECONDS = {file: {"seconds": 30 * number} for number, file in enumerate(FILES, 1)}


@pytest.mark.parametrize("count", [1, 3, 6])
def test_each_file_is_in_one_part_and_parts_take_equally_long(count: int) -> None:
    parts = nightly.divide(FILES, SECONDS, count)
    assert sorted(file for part in parts for file in part) == sorted(FILES)
    lengths = [sum(SECONDS[file]["seconds"] for file in part) for part in parts]
    assert max(lengths) <= 1.1 * min(lengths)
    assert nightly.divide(FILES, SECONDS, count) == parts


def test_files_are_those_that_pytest_selects() -> None:
    assert "tests/e2e/test_broken.py" in FILES
    assert "tests/fuzz/test_any_input.py" in FILES
    assert "tests/e2e/test_checkout.py" not in FILES


def test_what_passed_is_noted_and_what_failed_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nightly, "RECORD", ROOT / "tests" / "nightly-of-a-test.json")
    try:
        command = [sys.executable, "-c", "import sys; sys.exit('bad' in sys.argv[1])"]
        record: nightly.Record = {}
        assert nightly.run_part(["good", "bad"], record, command) == 1
        assert [*record] == ["good"]
        assert json.loads(nightly.RECORD.read_text("utf-8")) == record
        assert date.fromisoformat(record["good"]["day"])
        assert len(record["good"]["commit"].rstrip("+")) == 12
    finally:
        nightly.RECORD.unlink(missing_ok=True)


def test_what_has_not_passed_for_long_is_named() -> None:
    record = {"a": {"day": "2026-11-01"}, "b": {"day": "2026-11-20"}}
    late = nightly.overdue(["a", "b", "c"], record, date(2026, 11, 29))
    assert late == ["a (28 days)", "c (never)"]


@pytest.mark.parametrize("word", ["0/3", "4/3", "x", "1/x"])
def test_a_part_that_does_not_exist_is_refused(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nightly.main([word]) == 2
    assert "give K/N" in capsys.readouterr().err
