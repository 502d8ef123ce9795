"""The plan: what has to be done for an image, given what the engine has and what was tested."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from imgbuild.engine.types import HistoryEntry, StoredImage
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem, make_plan

PARTS = {"lock": "1", "lock packages": "a==1,b==2", "base": "2", "stage os": "3"}
DIGEST = InputDigest("sha256:new", PARTS)


@dataclass(frozen=True)
class Engine:
    """What the engine has: one image of ours, and what is known of its suites."""

    input_digest: str = "sha256:new"
    named: bool = True
    passed: bool | None = True
    parts: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


def _planned(
    image: Image, stored: Sequence[StoredImage], passed: bool | None = True, *, test: bool = True
) -> PlanItem:
    """Return the plan of an image; every stored image has a tag or a history of imgbuild's."""
    made = [
        replace(
            one,
            labels={
                "org.opencontainers.image.created": "1970-01-01T00:00:00Z",
                "imgbuild.repository": image.repository,
                **one.labels,
            },
            created=0,
        )
        for one in stored
    ]
    history = [HistoryEntry(f"LABEL imgbuild.name={image.name}")]
    return make_plan([(image, DIGEST)], made, lambda *_: passed, lambda _: history, test=test)[0]


def _plan(image: Image, engine: Engine, *, test: bool = True) -> PlanItem:
    labels = {
        "imgbuild.name": image.name,
        "imgbuild.input-digest": engine.input_digest,
        "imgbuild.inputs": json.dumps({"form": 2, "parts": engine.parts}),
    }
    stored = StoredImage("sha256:id", image.tags if engine.named else (), labels)
    return _planned(image, [stored], engine.passed, test=test)


@pytest.mark.parametrize(
    ("engine", "test", "action", "reason"),
    [
        (Engine(), True, Action.NOTHING, "up to date"),
        (Engine(named=False), True, Action.TAG, "built, not tagged yet"),
        (Engine(passed=None), True, Action.TEST, "built, not tested yet"),
        (Engine(named=False, passed=None), True, Action.TEST, "built, not tested yet"),
        (Engine(passed=False), True, Action.TEST, "built, its suites failed last time"),
        (Engine(passed=None), False, Action.NOTHING, "up to date"),
        (Engine(named=False, passed=None), False, Action.TAG, "built, not tagged yet"),
    ],
)
def test_what_is_to_be_done(
    image: Image, engine: Engine, test: bool, action: Action, reason: str
) -> None:
    item = _plan(image, engine, test=test)
    assert (item.action, item.reason, item.image_id) == (action, reason, "sha256:id")


@pytest.mark.parametrize(
    ("old", "reason"),
    [
        ({"base": "1"}, "base 1 → 2"),
        ({"lock": "0"}, "lock 0 → 1"),
        ({"lock": "0", "lock packages": "a==0,b==2"}, "lock: a 0 → 1"),
        ({"lock": "0", "lock packages": "c==3,b==2"}, "lock: a nothing → 1 (+1 more)"),
        ({"stage os": "0", "stage gone": "1"}, "Dockerfile: stages gone, os"),
        ({"stage os": "0"}, "Dockerfile: stage os"),
        ({"download downloads/x": "1"}, "download x 1 → nothing"),
        ({"base": "1", "stage os": "0"}, "base 1 → 2; Dockerfile: stage os"),
    ],
)
def test_changed_inputs_are_named(image: Image, old: dict[str, str], reason: str) -> None:
    item = _plan(image, Engine("sha256:old", parts={**PARTS, **old}))
    assert (item.action, item.reason) == (Action.BUILD, f"changed: {reason}")


def test_all_changes_are_there_for_programs(image: Image) -> None:
    old = {**PARTS, "lock": "0", "lock packages": "a==0,c==3"}
    item = _plan(image, Engine("sha256:old", parts=old))
    assert item.as_json()["changes"] == [
        {"input": "lock: a", "old": "0", "new": "1"},
        {"input": "lock: b", "old": None, "new": "2"},
        {"input": "lock: c", "old": "3", "new": None},
    ]


FORMER = '{"Dockerfile": "1", "base": "2", "files": "3"}'


@pytest.mark.parametrize("parts", ["no json", "[]", "1", '{"form": 2, "parts": 1}', FORMER])
def test_labels_of_another_form_only_cost_the_reason(image: Image, parts: str) -> None:
    labels = {"imgbuild.name": image.name, "imgbuild.input-digest": "x", "imgbuild.inputs": parts}
    stored = [StoredImage("sha256:id", image.tags, labels)]
    item = _planned(image, stored)
    assert item.action is Action.BUILD
    assert item.reason == "built by an imgbuild that recorded its inputs in another form"
    stored = [StoredImage("sha256:id", image.tags, {**labels, "imgbuild.pin.tensorflow": "2.1.0"})]
    item = _planned(image, stored)
    assert item.reason.startswith(f"changed: pin tensorflow 2.1.0 → {image.tensorflow}; ")


def test_which_image_of_the_engine_counts(image: Image) -> None:
    labels = {"imgbuild.name": image.name, "imgbuild.input-digest": DIGEST.total}
    first = StoredImage("sha256:a", (), labels, created=2)
    assert _planned(image, []).reason == "never built here"
    assert _planned(image, [replace(first, tags=image.tags[:1])]).action is Action.TAG
    other = replace(first, labels={**labels, "imgbuild.name": "tf-9"}, tags=image.tags)
    assert _planned(image, [other]).action is Action.BUILD
    silent = replace(first, labels={**labels, "imgbuild.input-digest": "x"}, tags=image.tags)
    assert _planned(image, [silent]).reason == "its inputs were not recorded"
    item = _planned(image, [first, replace(first, id="sha256:b", tags=image.tags, created=1)])
    assert (item.action, item.image_id) == (Action.NOTHING, "sha256:b")
