"""Results: which checks count as passed, why a suite has not, the summary, and what is kept.

The store keeps results for one image, one code, one expectation, and only if whole. Where results
of others are from is said by who found them, not by themselves. For how long what lacked a GPU is
good is tested in tests/unit/build/test_gate.py.
"""

import json
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError
from imgbuild.core.outcome import Outcome
from imgbuild.suites.results import RUN_AGAIN, Check, SuiteResult, read_results, suite_result
from imgbuild.suites.session import render_summary
from imgbuild.suites.store import ReportStore
from support.suite_results import changed, stored
from support.suite_samples import FAILED, HOROVOD, LATE, NO_GPU, PINS, SKIPS, SOME_GPU, report_of

SKIPPED = changed(PINS, passed=0, skipped=SKIPS)


@pytest.mark.parametrize(
    ("suites", "ok", "verdict"),
    [
        ((PINS,), True, Outcome.PASSED),
        ((FAILED,), False, Outcome.FAILED),
        ((changed(PINS, passed=0),), False, Outcome.FAILED),
        ((), False, Outcome.FAILED),
        ((SKIPPED,), False, Outcome.SKIPPED),
        ((PINS, changed(HOROVOD, skipped=SKIPS)), False, Outcome.INCOMPLETE),
        ((HOROVOD, SKIPPED), False, Outcome.INCOMPLETE),
        ((PINS, NO_GPU), True, Outcome.PASSED),
        ((PINS, SOME_GPU), True, Outcome.PASSED),
        ((NO_GPU,), False, Outcome.SKIPPED),
        ((PINS, changed(NO_GPU, failures=FAILED.failures)), False, Outcome.FAILED),
        ((PINS, LATE), False, Outcome.TIMED_OUT),
        ((PINS, changed(LATE, passed=0)), False, Outcome.TIMED_OUT),
        ((FAILED, LATE), False, Outcome.FAILED),
        ((changed(FAILED, timed_out=LATE.timed_out),), False, Outcome.FAILED),
    ],
)
def test_only_checks_that_ran_and_passed_count(
    suites: tuple[SuiteResult, ...], ok: bool, verdict: Outcome
) -> None:
    report = report_of("one", *suites)
    assert (report.ok, report.verdict) == (ok, verdict)
    if report.ok:
        stopped = replace(report, not_begun=("nodes",))
        assert (stopped.ok, stopped.verdict) == (False, Outcome.INCOMPLETE)


def test_problems_say_when_only_time_ran_out() -> None:
    late = report_of("one", PINS, LATE)
    assert late.problems == [f"horovod: test_x[mpirun]: {LATE.timed_out[0].message}", RUN_AGAIN]
    both = report_of("one", FAILED, changed(LATE, suite="nodes"))
    assert RUN_AGAIN not in both.problems
    assert "2 failed" not in render_summary([late], {})
    assert "1 timed out" in render_summary([late], {})
    assert LATE.timed_out[0].message in render_summary([late], {})


def test_the_summary_has_a_column_an_image_and_the_reasons() -> None:
    before = suite_result("tensorflow", passed=6, seconds=9.0).model_copy(
        update={"before": "2026-01-01T00:00:00Z"}
    )
    reports = [
        replace(report_of("one", PINS, FAILED, NO_GPU), not_begun=("tensorboard",)),
        report_of("two", before),
    ]
    text = render_summary(reports, {"three": CheckFailedError("the engine\nhas no room")})
    table = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = {row[0].strip(" `"): row[1:] for row in table}
    assert [cell.strip(" `") for cell in cells["suite"]] == ["one", "two"]
    for suite, column, facts in (
        ("pins", 0, ("passed", "3 checks", "1.5 s")),
        ("horovod", 0, ("failed", "3 checks", "1 failed")),
        ("tensorflow", 1, ("passed before", "2026-01-01T00:00:00Z", "6 checks")),
    ):
        assert all(fact in cells[suite][column] for fact in facts)
    assert "1 of 3 images passed" in text
    assert "\n````\na\n```\nb\n````" in text  # as a block of code, whatever is in it
    for fact in ("1 skipped: no \\| driver", "tensorboard", "the engine has no room"):
        assert fact in text


PIN = """
    def test_pin(component, image):
>       assert same(component, pin, found), f"{component}: pinned {pin}, the image has {found}"
E       AssertionError: python: pinned 3.6.15, the image has 3.6.14
E       assert False
E        +  where False = same_version('python', '3.6.15', '3.6.14')
"""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (PIN, "python: pinned 3.6.15, the image has 3.6.14"),
        ("E   AssertionError: a: no\nE     b: no\nE   assert not ['a', 'b']", "a: no b: no"),
        ("E   assert 1 == 2\nE    +  where 1 = f()", "assert 1 == 2 + where 1 = f()"),
    ],
)
def test_a_reason_is_the_message_of_an_assertion(message: str, reason: str) -> None:
    assert Check(test="test_pin", message=message).reason == reason


ID = "sha256:id"
KEYS = {"pins": "sha256:a", "horovod": "sha256:b"}


@pytest.fixture
def store(tmp_path: Path) -> ReportStore:
    return ReportStore(tmp_path)


def test_what_passed_is_remembered_for_its_key(store: ReportStore) -> None:
    assert store.verdict(ID, KEYS) is Outcome.UNKNOWN
    store.save(ID, KEYS, [PINS])
    store.save(ID, KEYS, [HOROVOD])
    assert store.verdict(ID, KEYS) is Outcome.PASSED
    known = store.passed(ID, KEYS)
    assert {*known} == {*KEYS}
    assert known["pins"] == stored(PINS, KEYS["pins"], before=known["pins"].before)
    assert str(known["pins"].before).endswith("Z")
    assert store.passed("sha256:other", KEYS) == {}
    changed = {**KEYS, "pins": "sha256:c"}
    assert store.passed(ID, changed).keys() == {"horovod"}
    for keys in (changed, {**KEYS, "new": "sha256:d"}, {}):
        assert store.verdict(ID, keys) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (FAILED, Outcome.FAILED),
        (changed(HOROVOD, passed=0), Outcome.FAILED),
        (changed(HOROVOD, passed=0, skipped=SKIPS), Outcome.UNKNOWN),
        (changed(HOROVOD, skipped=SKIPS), Outcome.UNKNOWN),
        (LATE, Outcome.UNKNOWN),
    ],
    ids=["failed", "empty", "skipped", "in part", "late"],
)
def test_what_failed_or_was_not_whole_is_run_again(
    store: ReportStore, result: SuiteResult, verdict: Outcome
) -> None:
    store.save(ID, KEYS, [PINS, result])
    assert store.verdict(ID, KEYS) is verdict
    assert store.passed(ID, KEYS).keys() == {"pins"}
    assert store.verdict(ID, {**KEYS, "horovod": "sha256:new"}) is Outcome.UNKNOWN
    store.save(ID, KEYS, [HOROVOD])
    assert store.verdict(ID, KEYS) is Outcome.PASSED


GOOD: dict[str, Any] = stored(PINS, KEYS["pins"], before="2026-01-01T00:00:00Z").as_json()


def test_former_keys_are_written_and_not_needed(tmp_path: Path, store: ReportStore) -> None:
    """Older versions of imgbuild read no result without a list of checks that nobody asked for."""
    assert report_of("one", PINS).as_json()["not_given"] == []
    assert GOOD["not_asked"] == []
    without = {key: value for key, value in GOOD.items() if key != "not_asked"}
    for entry in (GOOD, without):
        (tmp_path / "id.json").write_text(json.dumps({"image_id": ID, "suites": {"pins": entry}}))
        assert store.passed(ID, KEYS) == {"pins": stored(PINS, KEYS["pins"], before=GOOD["before"])}


@pytest.mark.parametrize("key", ["key", "passed", "failures", "skipped", "seconds", "before"])
def test_a_damaged_entry_says_nothing(tmp_path: Path, store: ReportStore, key: str) -> None:
    def known(entry: object) -> set[str]:
        document = {"image_id": ID, "suites": {"pins": entry}}
        (tmp_path / "id.json").write_text(json.dumps(document))
        return {*store.passed(ID, KEYS)}

    assert known(GOOD) == {"pins"}
    assert known({name: other for name, other in GOOD.items() if name != key}) == set()
    values: tuple[object, ...] = (None, "x", [{}], 10**400, -inf, -1)
    for value in values:
        fine = (key, value) == ("before", "x")  # any text
        assert known({**GOOD, key: value}) == ({"pins"} if fine else set())


def test_result_without_a_place_is_not_of_this_machine(store: ReportStore) -> None:
    """Also after other results were stored beside it."""
    without = {name: value for name, value in GOOD.items() if name != "found"}
    (store.folder / "id.json").write_text(json.dumps({"suites": {"pins": without}}))
    store.save(ID, KEYS, [HOROVOD])
    origins = {suite: result.origin for suite, result in store.results(ID).items()}
    assert origins == {"pins": "a report that does not say where", "horovod": None}


def test_import_leaves_out_results_without_a_time(store: ReportStore) -> None:
    _import(store, {"pins": {**GOOD, "before": None}, "horovod": GOOD}, signed_by="whose")
    assert {*store.results(ID)} == {"horovod"}


def test_skip_reasons_are_named_once() -> None:
    skipped = [{"test": test, "reason": "no GPU"} for test in ("a", "b")]
    entry = {**GOOD, "verdict": "incomplete", "skipped": skipped}
    (result,) = read_results({"pins": entry}).values()
    assert result.skip_reasons == ("no GPU",)


def test_result_whose_verdict_is_not_true_is_damaged() -> None:
    """Its checks are what counts; a word of another version is kept as it is."""
    assert read_results({"pins": {**GOOD, "passed": 0}}) == {}
    assert read_results({"pins": {**GOOD, "verdict": "skipped"}}) == {}
    (failed,) = read_results({"pins": {**GOOD, "verdict": "failed"}}).values()
    (other,) = read_results({"pins": {**GOOD, "verdict": "not asked"}}).values()
    assert (failed.ok, other.ok, other.verdict) == (False, False, "not asked")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"suites": []}', '{"suites": {"a": 1}}', "\xff"],
    ids=["empty", "list", "open", "suites", "entry", "bytes"],
)
def test_a_damaged_file_says_nothing_and_is_replaced(
    tmp_path: Path, store: ReportStore, text: str
) -> None:
    (tmp_path / "id.json").write_bytes(text.encode("latin-1"))
    assert store.verdict(ID, KEYS) is Outcome.UNKNOWN
    store.save(ID, KEYS, [PINS, HOROVOD])
    assert store.verdict(ID, KEYS) is Outcome.PASSED


THEIRS = {**GOOD, "passed": 9}
PLACE = "example.org/ml/tensorflow"


def _import(store: ReportStore, entries: dict[str, Any], signed_by: str = "") -> None:
    """Import what a provenance of a repository says."""
    store.import_results(ID, read_results(entries), PLACE, signed_by=signed_by)


@pytest.mark.parametrize("forged", [{"found": None}, {"found": ""}, {"found": "here"}, {}])
def test_a_verdict_cannot_say_that_it_was_found_here_or_replace_one_of_here(
    store: ReportStore, forged: dict[str, Any]
) -> None:
    store.save(ID, KEYS, [HOROVOD])
    theirs = {**THEIRS, **forged}
    _import(store, {"pins": theirs, "horovod": theirs}, signed_by="whose")
    assert store.results(ID)["pins"].found == store.passed(ID, KEYS)["pins"].found == PLACE
    assert store.results(ID)["horovod"].found is None
    assert store.passed(ID, KEYS)["horovod"].passed == HOROVOD.passed


def test_a_verdict_cannot_say_who_signed_it(store: ReportStore) -> None:
    """The fingerprint of a public key is no secret."""
    _import(store, {"pins": {**THEIRS, "signed_by": "whose"}})
    assert "pins" not in store.results(ID)
    _import(store, {"horovod": {**THEIRS, "signed_by": "other"}}, signed_by="whose")
    assert store.results(ID)["horovod"].signed_by == "whose"


@pytest.mark.parametrize("key", ["passed", "failures", "skipped", "seconds"])
def test_a_damaged_verdict_is_not_taken(store: ReportStore, key: str) -> None:
    """Whatever its verdict is: who publishes the image reads all of it."""
    for verdict in ("failed", "passed"):
        damaged = {**THEIRS, "verdict": verdict, key: "x"}
        _import(store, {"pins": damaged}, signed_by="whose")
        assert store.results(ID) == {}


def test_unsigned_results_of_a_repository_do_not_count(store: ReportStore, tmp_path: Path) -> None:
    """Earlier versions kept them; signed ones, or those of a run here, replace them."""
    unsigned = {**GOOD, "found": PLACE}
    suites = {"pins": unsigned, "horovod": unsigned}
    (tmp_path / "id.json").write_text(json.dumps({"built": True, "suites": suites}))
    assert store.results(ID) == {}
    assert store.passed(ID, KEYS) == {}
    _import(store, {"pins": THEIRS}, signed_by="whose")
    store.save(ID, KEYS, [HOROVOD])
    assert {*store.passed(ID, KEYS)} == {"pins", "horovod"}
    assert store.was_built_here(ID)


def test_that_it_was_built_here_is_kept_and_is_no_other_word(
    store: ReportStore, tmp_path: Path
) -> None:
    assert not store.was_built_here(ID)
    store.import_results(ID, {}, built=True, seconds=61.5)
    store.save(ID, KEYS, [PINS])
    _import(store, {"pins": THEIRS}, signed_by="whose")
    assert (store.was_built_here(ID), store.work_seconds(ID)) == (True, 61.5)
    for word in ("true", 1, {"a": 1}):
        text = json.dumps({"built": word, "seconds": word, "suites": {}})
        (tmp_path / "id.json").write_text(text)
        assert (store.was_built_here(ID), store.work_seconds(ID)) == (False, 0)


def test_records_say_which_images_are_own(store: ReportStore) -> None:
    """Neither a test of an image, nor results found elsewhere, nor an extension makes it own."""
    store.save("sha256:tested", {}, ())
    store.import_results("sha256:found", read_results({"pins": THEIRS}), PLACE, signed_by="whose")
    store.record_extension("sha256:extended")
    store.record_pull("sha256:pulled", PLACE, "fingerprint")
    store.import_results("sha256:built", {}, built=True)
    names = ("tested", "found", "extended", "pulled", "built", "unknown")
    own = [name for name in names if store.is_own(f"sha256:{name}")]
    made_here = [name for name in names if store.was_made_here(f"sha256:{name}")]
    assert (own, made_here) == (["pulled", "built"], ["extended", "built"])
    assert store.verified_by("sha256:pulled") == "fingerprint"
    assert store.verified_by("sha256:built") is None
    # Later results keep the record.
    store.save("sha256:pulled", {}, ())
    store.import_results("sha256:pulled", read_results({"pins": THEIRS}), PLACE, signed_by="whose")
    assert store.is_own("sha256:pulled")


@pytest.mark.parametrize("text", ["", "[]", '{"built": "yes"}', '{"built": 1, "pulled": ""}'])
def test_a_damaged_record_makes_no_image_own(store: ReportStore, text: str) -> None:
    store.import_results("sha256:built", {}, built=True)
    (store.folder / "built.json").write_text(text, encoding="utf-8")
    assert not store.is_own("sha256:built")
