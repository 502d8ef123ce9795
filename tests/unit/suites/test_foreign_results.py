"""Results that another wrote: where they are from is said by who found them, not by themselves."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import FakeEngine

from imgbuild.engine.types import RunOptions, StoredImage
from imgbuild.errors import CheckFailedError
from imgbuild.matrix.images import Image
from imgbuild.project import Project, state_dir
from imgbuild.suites import container
from imgbuild.suites.catalog import code_digest, read_suites, suite_keys
from imgbuild.suites.container import (
    CONTAINER_LABEL,
    TestTarget,
    label_of,
    place_of,
    read_contents,
    remove_leftovers,
)
from imgbuild.suites.expectation import expectation
from imgbuild.suites.results import Report, ReportStore, SuiteResult, Verdict

ID, KEYS = "sha256:id", {"pins": "sha256:a"}
OWN = SuiteResult("pins", 3, (), (), 1.5)
THEIRS = {**SuiteResult("pins", 9, (), (), 1.5).as_json(), "key": "sha256:a", "before": "then"}


@pytest.fixture
def store(tmp_path: Path) -> ReportStore:
    return ReportStore(tmp_path)


@pytest.mark.parametrize("forged", [{"found": None}, {"found": ""}, {"found": "here"}, {}])
def test_a_verdict_cannot_say_that_it_was_found_here(
    store: ReportStore, forged: dict[str, Any]
) -> None:
    store.import_results(ID, {"pins": {**THEIRS, **forged}}, "example.org/cache")
    assert store.document(ID)["pins"]["found"] == "example.org/cache"
    assert store.passed(ID, KEYS)["pins"].found == "example.org/cache"


def test_a_result_of_this_machine_is_not_replaced(store: ReportStore) -> None:
    store.save(ID, KEYS, [OWN])
    store.import_results(ID, {"pins": THEIRS, "more": THEIRS}, "example.org/cache")
    assert store.document(ID)["pins"]["passed"] == 3
    assert store.document(ID)["pins"]["found"] is None
    assert store.document(ID)["more"]["found"] == "example.org/cache"


def test_that_it_was_built_here_is_kept_and_is_no_other_word(
    store: ReportStore, tmp_path: Path
) -> None:
    assert not store.was_built_here(ID)
    store.import_results(ID, {}, built=True, seconds=61.5)
    store.save(ID, KEYS, [OWN])
    store.import_results(ID, {"pins": THEIRS}, "example.org/cache")
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
    store.import_results(ID, {"pins": THEIRS}, "example.org/cache")
    assert store.verdict(ID, KEYS) is Verdict.PASSED
    store.import_results("sha256:two", {"pins": {**THEIRS, **change}}, "example.org/cache")
    assert store.verdict("sha256:two", KEYS) is Verdict.UNKNOWN
    bare = {key: value for key, value in THEIRS.items() if key not in change}
    store.import_results("sha256:three", {"pins": bare}, "example.org/cache")
    assert store.verdict("sha256:three", KEYS) is Verdict.UNKNOWN


def test_what_others_run_on_the_engine_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine([StoredImage(ID)])
    labels = [label_of("tf-a"), label_of("tf-b"), "tf-a@another machine", "tf-a"]
    for value in labels:
        more = {"command": ["sleep"], "options": RunOptions()}
        engine.start(ID, labels={CONTAINER_LABEL: value}, **more)  # type: ignore[arg-type]
    remove_leftovers(["tf-a"], engine)
    assert [one.labels[CONTAINER_LABEL] for one in engine.running.values()] == labels[1:]
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert label_of("tf-a") not in labels
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename="elsewhere"))
    assert len({place_of(Path("/a")), place_of(Path("/b")), place_of(state_dir())}) == 3


def test_what_is_in_an_image_is_read_without_network_and_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An engine that lends its driver to every container would show it as the image's own."""
    engine, seen = FakeEngine([StoredImage(ID)]), list[RunOptions]()

    def execute(_: object, name: str, __: object) -> str:
        seen.append(engine.running[name].options)
        return "{}"

    monkeypatch.setattr(container, "docker_exec", execute)
    with pytest.raises(CheckFailedError):
        read_contents("tf-a", ID, engine)
    (options,) = seen
    assert (options.network, options.gpus) == ("none", None)
    assert options.environment == {"NVIDIA_VISIBLE_DEVICES": "void"}


@pytest.mark.parametrize(
    ("verdicts", "not_begun", "expected"),
    [
        (("passed",), (), Verdict.PASSED),
        (("passed",), ("pins",), Verdict.INCOMPLETE),
        ((), (), Verdict.FAILED),
        (("nothing",), (), Verdict.FAILED),
    ],
)
def test_an_image_has_passed_where_every_suite_ran(
    verdicts: tuple[str, ...], not_begun: tuple[str, ...], expected: Verdict
) -> None:
    suites = tuple(SuiteResult(one, 3 * (one == "passed"), (), (), 1.0) for one in verdicts)
    report = Report("tf-a", ID, "", suites, not_begun=not_begun)
    assert report.verdict is expected
    assert report.ok is (expected is Verdict.PASSED)


def test_horovodrun_is_expected_where_it_can_start_ranks(
    images: dict[str, Image], project: Project
) -> None:
    found = {
        name: expectation(images[name], project)["horovodrun"]
        for name in ("tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi", "tf-1.10-cpu-debian")
    }
    assert found["tf-2.2-cpu-debian"]
    assert not found["tf-2.2-cpu-debian-intelmpi"]


@pytest.mark.parametrize("name", ["data.txt", "data.json", "sub/data.bin"])
def test_every_file_of_the_suites_is_their_code(tmp_path: Path, name: str) -> None:
    (tmp_path / "test_a.py").write_text('"""Suite `a`: x."""\n')
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    codes = []
    for text in ("1", "2"):
        file.write_text(text)
        codes.append(code_digest(tmp_path))
    assert codes[0] != codes[1]
    expected = [suite_keys(read_suites(tmp_path), {"pins": one}) for one in ("1", "2")]
    assert expected[0] != expected[1]


@pytest.mark.parametrize(
    ("version", "needs"), [("1.9.0", True), ("1.13.2", True), ("1.14.0", False), ("2.2.3", False)]
)
def test_a_tensorflow_for_gpus_needs_a_driver_before_1_14(version: str, needs: bool) -> None:
    expected = {"tensorflow": version}
    assert TestTarget("a", ID, "a:1", "gpu", expected).needs_driver is needs
    assert not TestTarget("a", ID, "a:1", "cpu", expected).needs_driver
