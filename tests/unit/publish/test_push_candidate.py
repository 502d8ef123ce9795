"""Every reason for which an image is not published, by name, and what an allowance changes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.dockerfile.labels import INPUT_DIGEST, STANDIN, TAKEN_WHEEL
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image, standin_image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.publish.candidate import Objection, approve, find_objections, refusals
from imgbuild.suites.results import Check, SuiteResult, read_results, suite_result
from imgbuild.suites.store import ReportStore
from support.bench import Bench
from support.suite_results import changed

ID = "sha256:" + "1" * 64
TOTAL = "sha256:" + "a" * 64
KEYS = {"pins": "k1", "horovod": "k2"}
GPU_KEYS = {**KEYS, "gpu_runs": "k3"}
REASON = "no NVIDIA driver: the engine offers none to containers"
SUBSTITUTED, NO_GPU = "--allow-substituted", "--allow-skipped gpu_runs"
PASSED = (
    suite_result("pins", passed=3, seconds=1.0),
    suite_result("horovod", passed=2, seconds=1.0),
)
SKIPPED = suite_result(
    "gpu_runs",
    skipped=(Check(test="a", message=REASON), Check(test="b", message=REASON)),
    seconds=0.1,
)
FAILED = suite_result(
    "horovod", passed=1, failures=(Check(test="test_two_ranks", message="boom"),), seconds=1.0
)
INCOMPLETE = suite_result(
    "horovod", passed=1, skipped=(Check(test="test_two_ranks", message="no ssh"),), seconds=1.0
)


def _results(folder: Path, *results: SuiteResult) -> Mapping[str, SuiteResult]:
    """Return what this machine remembers after such a run."""
    store = ReportStore(folder / "reports")
    store.save(ID, GPU_KEYS, results)
    return store.results(ID)


@dataclass(frozen=True)
class Judged:
    """An image of the engine, what was planned, and what is known of it."""

    item: PlanItem
    stored: StoredImage
    report: Mapping[str, SuiteResult]
    keys: Mapping[str, str]
    built: bool = True
    signed_by: str | None = None

    def labelled(self, **labels: str) -> "Judged":
        changed = {**self.stored.labels, **labels}
        return replace(self, stored=replace(self.stored, labels=changed))

    def objections(self) -> list[Objection]:
        what = (self.item, self.stored, self.report, self.keys)
        return [*find_objections(*what, built=self.built, signed_by=self.signed_by)]

    def refusals(self, *allowed: str) -> list[str]:
        return refusals(self.objections(), allowed)


def _judged(image: Image, keys: Mapping[str, str], report: Mapping[str, SuiteResult]) -> Judged:
    """Return an image that is built from what the matrix says."""
    assert image.os.image
    labels = {
        INPUT_DIGEST: TOTAL,
        "imgbuild.input.base": "registry",
        "imgbuild.input.cpython": "source",
        "org.opencontainers.image.base.digest": image.os.image.split("@")[1],
    }
    item = PlanItem(image, InputDigest(TOTAL, {}), Action.NOTHING, "up to date", ID)
    return Judged(item, StoredImage(ID, image.tags, labels), report, keys)


@pytest.fixture
def good(images: dict[str, Image], tmp_path: Path) -> Judged:
    """Return what may be published."""
    return _judged(images["tf-2.2-cpu-debian"], KEYS, _results(tmp_path, *PASSED))


@pytest.fixture
def gpu(images: dict[str, Image], tmp_path: Path) -> Judged:
    """Return a GPU image that was tested without a GPU."""
    return _judged(images["tf-2.2-gpu-ubuntu"], GPU_KEYS, _results(tmp_path, *PASSED, SKIPPED))


BUILD = {"action": Action.BUILD, "image_id": None, "reason": "changed: pin git"}


@pytest.mark.parametrize(
    ("plan", "more", "expected"),
    [
        (BUILD, {"stored": None, "report": {}}, "(changed: pin git): run `imgbuild build`"),
        (BUILD, {}, "(changed: pin git): run `imgbuild build`"),
        ({}, {"stored": None}, "was removed from the engine"),
        ({}, {"stored": StoredImage("sha256:other")}, "was removed from the engine"),
        ({"digest": InputDigest("sha256:b", {})}, {}, "has other inputs than this checkout"),
        ({}, {"stored": StoredImage(ID)}, "has other inputs than this checkout"),
        (
            {"action": Action.TAG, "reason": "not tagged yet"},
            {},
            "like an image that exceeds its budget",
        ),
        ({}, {"report": {}}, f"no suite was run on this image ({ID}): run `imgbuild test`"),
        ({}, {"keys": {**KEYS, "pins": "newer"}}, "suite pins ran with older code"),
    ],
)
def test_only_the_tested_image_of_this_checkout_is_published(
    good: Judged, plan: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    assert good.objections() == []
    candidate = replace(good, item=replace(good.item, **plan), **more)
    (refusal,) = candidate.refusals()
    assert expected in refusal


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (FAILED, "suite horovod failed: test_two_ranks"),
        (INCOMPLETE, "suite horovod incomplete: no ssh"),
        (changed(SKIPPED, suite="horovod"), f"suite horovod skipped: {REASON}"),
        (suite_result("horovod"), "suite horovod failed: nothing was checked"),
        (changed(FAILED, suite="gpu_runs"), "suite gpu_runs failed: test_two_ranks"),
    ],
)
def test_a_suite_that_did_not_pass(
    gpu: Judged, tmp_path: Path, result: SuiteResult, expected: str
) -> None:
    document = _results(tmp_path, *PASSED, SKIPPED, result)
    assert replace(gpu, report=document).refusals(SUBSTITUTED, NO_GPU) == [expected]


def test_a_mandatory_suite_that_was_skipped(gpu: Judged, tmp_path: Path) -> None:
    in_part = _results(tmp_path, *PASSED, changed(SKIPPED, passed=1))  # on a single GPU
    for judged, word in ((gpu, "skipped"), (replace(gpu, report=in_part), "incomplete")):
        text = f"suite gpu_runs {word}: {REASON}"
        assert judged.refusals(SUBSTITUTED) == [f"{text} (--allow-skipped gpu_runs publishes it)"]
        assert judged.refusals(NO_GPU) == []
        assert judged.objections() == [Objection(text, NO_GPU)]


def test_a_stand_in_build_is_never_published(good: Judged) -> None:
    item = replace(good.item, image=standin_image(good.item.image))
    for judged, note in (
        (good.labelled(**{STANDIN: "for tests only."}), "for tests only"),
        (replace(good, item=item), "this machine's settings say so"),
    ):
        text = f"it is built from stand-ins, which are never published ({note})"
        assert judged.refusals(SUBSTITUTED, NO_GPU) == [text]


@pytest.mark.parametrize(
    ("label", "value", "fact"),
    [
        ("base", "bootstrapped", "base image debian-12 is substituted: bootstrapped"),
        ("cpython", "local prefix", "CPython is substituted: local prefix"),
        ("substitutes", "SHA256_A, SHA256_B", "SHA256_A, SHA256_B"),
    ],
)
def test_an_input_of_elsewhere_needs_its_option(
    good: Judged, label: str, value: str, fact: str
) -> None:
    judged = good.labelled(**{f"imgbuild.input.{label}": value})
    (reason,) = judged.refusals(NO_GPU)
    assert fact in reason
    assert SUBSTITUTED in reason
    assert judged.refusals(SUBSTITUTED) == []


def test_what_was_not_made_here_is_refused(good: Judged) -> None:
    """Also a wheel that an earlier version took from a repository; the reason says what to do."""
    for judged in (good.labelled(**{TAKEN_WHEEL: "0123456789abcdef"}), replace(good, built=False)):
        (reason,) = judged.refusals(NO_GPU, SUBSTITUTED)
        assert f"`docker rmi --force {ID}`, then `imgbuild build`" in reason


def test_a_verdict_proves_only_what_it_says_of_itself(good: Judged) -> None:
    entries = {suite: result.as_json() for suite, result in good.report.items()}
    pins = entries["pins"]
    for word, values in {"key": (None, ""), "found": ("", "a/b")}.items():
        without = {name: value for name, value in pins.items() if name != word}
        for entry in (without, *({**pins, word: value} for value in values)):
            results = read_results({**entries, "pins": entry})
            (reason,) = replace(good, report=results).refusals()
            assert "pins" in reason
    damaged = {"pins": {"key": "k1", "found": None}, "horovod": "passed"}
    results = read_results({**entries, **damaged})
    assert results == {}
    (reason,) = replace(good, report=results).refusals()
    assert "no suite was run on this image" in reason


def test_another_base_and_labels_that_do_not_say(gpu: Judged) -> None:
    changed = gpu.labelled(**{"org.opencontainers.image.base.digest": ID})
    (found,) = changed.refusals(NO_GPU)
    assert f"its base image ubuntu-18.04 is substituted: {ID}, not the matrix's" in found
    bare = replace(gpu, stored=replace(gpu.stored, labels={INPUT_DIGEST: TOTAL}))
    assert len(bare.refusals(NO_GPU)) == 2


def test_every_reason_is_named_at_once(gpu: Judged, tmp_path: Path) -> None:
    changed = gpu.labelled(**{STANDIN: "for tests", "imgbuild.input.substitutes": "SHA256_MPI"})
    found = replace(changed, report=_results(tmp_path, FAILED)).refusals()
    assert [one.split(":")[0] for one in found] == [
        "it is built from stand-ins, which are never published (for tests)",
        "downloads are substituted",
        "suite horovod failed",
        "suite gpu_runs skipped",
    ]


def test_candidate_has_snapshot_and_required_suites(bench: Bench) -> None:
    dated = {"debian": Path("/snapshots/20261101T000000Z")}
    bench.change(inputs=replace(bench.context.inputs, snapshots=dated))
    bench.build()
    for item in bench.plan():
        bench.context.store.import_results(item.image_id or "", {"forged": PASSED[0]})
    for candidate in approve(bench.opened(), {SUBSTITUTED}):
        assert candidate.snapshots == {"debian": "20261101T000000Z"}
        assert candidate.work_seconds == 61.5
        assert candidate.report.keys() == bench.context.suite_keys[candidate.name].keys()


def _changed(results: Mapping[str, SuiteResult], **update: str) -> dict[str, SuiteResult]:
    return {suite: result.model_copy(update=update) for suite, result in results.items()}


def test_what_a_trusted_key_has_signed_counts_as_made_here(good: Judged) -> None:
    """Image and results, and of results only those that this very signature is of."""
    found = _changed(good.report, found="r.example/x")
    taken = replace(good, built=False, report=found)
    assert len(taken.refusals(SUBSTITUTED, NO_GPU)) == 2
    signed = _changed(found, signed_by="me")
    mine = replace(taken, report=signed, signed_by="me")
    assert mine.objections() == mine.labelled(**{TAKEN_WHEEL: "x"}).objections() == []
    assert replace(mine, signed_by=None).refusals()
    mixed = {**signed, "horovod": _changed(signed, signed_by="another")["horovod"]}
    (left,) = replace(mine, report=mixed).objections()
    assert "horovod" in left.text
    assert "pins" not in left.text
    failed = {**signed, "pins": _changed(signed, verdict="failed")["pins"]}
    assert replace(mine, report=failed).refusals()
