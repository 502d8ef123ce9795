"""The report store keeps results for one image, one code, one expectation, and only if whole.

Where results of others are from is said by who found them, not by themselves.
"""

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from imgbuild.suites.results import ReportStore, SuiteResult, TestFailure, TestSkip, Verdict

ID = "sha256:id"
KEYS = {"pins": "sha256:a", "horovod": "sha256:b"}
PINS, HOROVOD = (SuiteResult(name, 3, (), (), 1.5) for name in KEYS)
FAILED = SuiteResult("horovod", 2, (TestFailure("test_x", "no"),), (), 1.0)
NO_GPU = SuiteResult("gpu_runs", 0, (), (TestSkip("test_x", "no driver"),), 1.0)


@pytest.fixture
def store(tmp_path: Path) -> ReportStore:
    return ReportStore(tmp_path)


def test_what_passed_is_remembered_for_its_key(store: ReportStore) -> None:
    assert store.verdict(ID, KEYS) is Verdict.UNKNOWN
    store.save(ID, KEYS, [PINS])
    store.save(ID, KEYS, [HOROVOD])
    assert store.verdict(ID, KEYS) is Verdict.PASSED
    known = store.passed(ID, KEYS)
    assert {*known} == {*KEYS}
    assert (known["pins"].passed, known["pins"].seconds) == (3, 1.5)
    assert known["pins"].before is not None
    assert known["pins"].before.endswith("Z")
    assert store.passed("sha256:other", KEYS) == {}
    changed = {**KEYS, "pins": "sha256:c"}
    assert store.passed(ID, changed).keys() == {"horovod"}
    assert store.verdict(ID, changed) is Verdict.UNKNOWN
    assert store.verdict(ID, {**KEYS, "new": "sha256:d"}) is Verdict.UNKNOWN
    assert store.verdict(ID, {}) is Verdict.UNKNOWN


def test_what_failed_is_known_and_run_again(store: ReportStore) -> None:
    store.save(ID, KEYS, [PINS, FAILED])
    assert store.verdict(ID, KEYS) is Verdict.FAILED
    assert store.passed(ID, KEYS).keys() == {"pins"}
    assert store.verdict(ID, {**KEYS, "horovod": "sha256:new"}) is Verdict.UNKNOWN
    store.save(ID, KEYS, [HOROVOD])
    assert store.verdict(ID, KEYS) is Verdict.PASSED


@pytest.mark.parametrize(
    "result",
    [
        SuiteResult("pins", 2, (), NO_GPU.skips, 1.0),
        SuiteResult("pins", 0, (), NO_GPU.skips, 1.0),
        SuiteResult("pins", 0, (), (), 1.0),
    ],
)
def test_what_was_not_whole_is_run_again(store: ReportStore, result: SuiteResult) -> None:
    store.save(ID, KEYS, [result, HOROVOD])
    assert store.passed(ID, KEYS).keys() == {"horovod"}


@pytest.mark.parametrize("lacking", [NO_GPU, replace(NO_GPU, passed=3)])
def test_what_lacked_a_gpu_is_looked_at_again_where_gpus_are(
    store: ReportStore, lacking: SuiteResult
) -> None:
    keys = {**KEYS, "gpu_runs": "sha256:g"}
    for then in (None, "", "one driver"):  # GPUs that were offered then may have been of no use
        store.save(ID, keys, [PINS, HOROVOD, lacking], gpus=then)
        assert store.verdict(ID, keys) is Verdict.PASSED
        for now in ("", "another driver"):  # that are not known, that are others
            assert store.verdict(ID, keys, gpus=now) is Verdict.UNKNOWN
            assert store.passed(ID, keys, gpus=now).keys() == KEYS.keys()
        assert store.passed(ID, keys)["gpu_runs"].skips == lacking.skips
    assert store.verdict(ID, keys, gpus="one driver") is Verdict.PASSED
    store.save(ID, keys, [SuiteResult("gpu_runs", 5, (), (), 1.0)], gpus="one driver")
    assert store.verdict(ID, keys, gpus="another driver") is Verdict.PASSED


GOOD: dict[str, Any] = {
    **PINS.as_json(),
    "key": KEYS["pins"],
    "gpus": None,
    "before": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("key", ["passed", "failures", "skipped", "not_asked", "seconds", "before"])
def test_a_damaged_entry_says_nothing(tmp_path: Path, store: ReportStore, key: str) -> None:
    def known(entry: object) -> set[str]:
        document = {"image_id": ID, "suites": {"pins": entry}}
        (tmp_path / "id.json").write_text(json.dumps(document))
        return {*store.passed(ID, KEYS)}

    assert known(GOOD) == {"pins"}
    assert known({name: other for name, other in GOOD.items() if name != key}) == set()
    fine = [("before", "x"), ("passed", 10**400), ("passed", -1)]  # any text, any number
    values: tuple[object, ...] = (None, "x", [{}], 10**400, -inf, -1)
    for value in values:
        assert known({**GOOD, key: value}) == ({"pins"} if (key, value) in fine else set())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"suites": []}', '{"suites": {"a": 1}}', "\xff", "[" * 100_000],
    ids=["empty", "list", "open", "suites", "entry", "bytes", "deep"],
)
@pytest.mark.usefixtures("no_collection")
def test_a_damaged_file_says_nothing_and_is_replaced(
    tmp_path: Path, store: ReportStore, text: str
) -> None:
    (tmp_path / "id.json").write_bytes(text.encode("latin-1"))
    assert store.verdict(ID, KEYS) is Verdict.UNKNOWN
    store.save(ID, KEYS, [PINS, HOROVOD])
    assert store.verdict(ID, KEYS) is Verdict.PASSED


THEIRS = {**GOOD, "passed": 9}
CACHE = "example.org/cache"


@pytest.mark.parametrize("forged", [{"found": None}, {"found": ""}, {"found": "here"}, {}])
def test_a_verdict_cannot_say_that_it_was_found_here(
    store: ReportStore, forged: dict[str, Any]
) -> None:
    store.import_results(ID, {"pins": {**THEIRS, **forged}}, CACHE)
    assert store.document(ID)["pins"]["found"] == CACHE
    assert store.passed(ID, KEYS)["pins"].found == CACHE


def test_a_result_of_this_machine_is_not_replaced(store: ReportStore) -> None:
    store.save(ID, KEYS, [PINS])
    store.import_results(ID, {"pins": THEIRS, "more": THEIRS}, CACHE)
    assert store.document(ID)["pins"]["passed"] == 3
    assert store.document(ID)["pins"]["found"] is None
    assert store.document(ID)["more"]["found"] == CACHE


def test_that_it_was_built_here_is_kept_and_is_no_other_word(
    store: ReportStore, tmp_path: Path
) -> None:
    assert not store.was_built_here(ID)
    store.import_results(ID, {}, built=True, seconds=61.5)
    store.save(ID, KEYS, [PINS])
    store.import_results(ID, {"pins": THEIRS}, CACHE)
    assert store.was_built_here(ID)
    assert store.work_seconds(ID) == 61.5
    for word in ("true", 1, {"a": 1}):
        text = json.dumps({"built": word, "seconds": word, "suites": {}})
        (tmp_path / "id.json").write_text(text)
        assert not store.was_built_here(ID)
        assert store.work_seconds(ID) == 0


@pytest.mark.parametrize(
    "change", [{"key": None}, {"failures": [{"test": "x", "message": "no"}]}, {"failures": None}]
)
def test_an_entry_that_does_not_prove_it_has_not_passed(
    store: ReportStore, change: dict[str, Any]
) -> None:
    keys = {"pins": KEYS["pins"]}
    store.import_results(ID, {"pins": THEIRS}, CACHE)
    assert store.verdict(ID, keys) is Verdict.PASSED
    store.import_results("sha256:two", {"pins": {**THEIRS, **change}}, CACHE)
    assert store.verdict("sha256:two", keys) is Verdict.UNKNOWN
    bare = {key: value for key, value in THEIRS.items() if key not in change}
    store.import_results("sha256:three", {"pins": bare}, CACHE)
    assert store.verdict("sha256:three", keys) is Verdict.UNKNOWN
