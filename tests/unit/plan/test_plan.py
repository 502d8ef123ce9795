"""The plan: what has to be done for an image, given what the engine has and what was tested."""

import json
from dataclasses import dataclass, field

import pytest

from imgbuild.engine.stored import StoredImage
from imgbuild.matrix.image import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem, Verdict, make_plan

DIGEST = InputDigest("sha256:new", {"lock": "1", "base": "2"})


@dataclass(frozen=True)
class Engine:
    """What the engine has: one image of ours, and what is known of its suites."""

    input_digest: str = "sha256:new"
    named: bool = True
    verdict: Verdict = Verdict.PASSED
    parts: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


def _plan(image: Image, engine: Engine, *, test: bool = True) -> PlanItem:
    labels = {
        "imgbuild.name": image.name,
        "imgbuild.input-digest": engine.input_digest,
        "imgbuild.inputs": json.dumps(engine.parts),
    }
    stored = StoredImage("sha256:id", image.tags if engine.named else (), labels)
    verdict = {"sha256:id": engine.verdict}
    return make_plan([(image, DIGEST)], [stored], lambda i: verdict[i], test=test)[0]


def test_an_image_that_was_never_built_is_built(image: Image) -> None:
    item = make_plan([(image, DIGEST)], [], lambda _: Verdict.UNKNOWN)[0]
    assert (item.action, item.reason) == (Action.BUILD, "never built here")


def test_an_image_that_passed_and_has_its_names_is_left_alone(image: Image) -> None:
    item = _plan(image, Engine())
    assert (item.action, item.image_id) == (Action.NOTHING, "sha256:id")


def test_changed_inputs_are_named(image: Image) -> None:
    item = _plan(image, Engine("sha256:old", parts={"lock": "0", "base": "2"}))
    assert (item.action, item.reason) == (Action.BUILD, "changed: lock")


@pytest.mark.parametrize("parts", ["no json", "[]"])
def test_damaged_labels_only_cost_the_reason(image: Image, parts: str) -> None:
    labels = {"imgbuild.name": image.name, "imgbuild.input-digest": "x", "imgbuild.inputs": parts}
    stored = [StoredImage("sha256:id", image.tags, labels)]
    item = make_plan([(image, DIGEST)], stored, lambda _: Verdict.PASSED)[0]
    assert (item.action, item.reason) == (Action.BUILD, "changed: lock, base")


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (Verdict.UNKNOWN, "built, not tested yet"),
        (Verdict.FAILED, "built, its suites failed last time"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_an_image_without_a_passed_report_is_tested(
    image: Image, verdict: Verdict, reason: str, named: bool
) -> None:
    item = _plan(image, Engine(named=named, verdict=verdict))
    assert (item.action, item.reason) == (Action.TEST, reason)


def test_an_image_that_passed_without_its_name_gets_it(image: Image) -> None:
    assert _plan(image, Engine(named=False)).action is Action.NAME


def test_without_tests_an_unknown_image_is_left_alone_or_named(image: Image) -> None:
    unknown = Verdict.UNKNOWN
    assert _plan(image, Engine(verdict=unknown), test=False).action is Action.NOTHING
    assert _plan(image, Engine(named=False, verdict=unknown), test=False).action is Action.NAME


def test_one_of_two_names_is_not_enough(image: Image) -> None:
    labels = {"imgbuild.name": image.name, "imgbuild.input-digest": DIGEST.total}
    stored = [StoredImage("sha256:id", image.tags[:1], labels)]
    assert make_plan([(image, DIGEST)], stored, lambda _: Verdict.PASSED)[0].action is Action.NAME


def test_the_image_of_another_name_does_not_count(image: Image) -> None:
    labels = {"imgbuild.name": "tf-9", "imgbuild.input-digest": DIGEST.total}
    stored = [StoredImage("sha256:id", image.tags, labels)]
    assert make_plan([(image, DIGEST)], stored, lambda _: Verdict.PASSED)[0].action is Action.BUILD


def test_the_named_and_tested_of_two_equal_images_is_taken(image: Image) -> None:
    labels = {"imgbuild.name": image.name, "imgbuild.input-digest": DIGEST.total}
    stored = [
        StoredImage("sha256:a", (), labels, created=2),
        StoredImage("sha256:b", image.tags, labels, created=1),
    ]
    item = make_plan([(image, DIGEST)], stored, lambda _: Verdict.PASSED)[0]
    assert (item.action, item.image_id) == (Action.NOTHING, "sha256:b")
