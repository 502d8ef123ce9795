"""The plan: what has to be done for an image, given what the engine has and what was tested."""

import json
from dataclasses import replace
from typing import Any

import pytest

from imgbuild.engine.types import StoredImage
from imgbuild.locks.lockfile import FOLDER
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem, labels_are_consistent, make_plan, our_tags

PARTS = {"lock": "1", "lock packages": "a==1,b==2", "base": "2", "stage os": "3"}
PARTS[f"locks/{FOLDER}/a-1.txt"] = "1"
DIGEST = InputDigest("sha256:new", PARTS)
#: A verdict for all images, or one for each.
Passed = bool | dict[str, bool]


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


def _stored(image: Image, name: str = "sha256:id", **fields: Any) -> StoredImage:
    """Return an image of ours with these inputs, its tags and ``labels`` besides."""
    created = fields.get("created", 0)
    labels = {
        "imgbuild.name": image.name,
        "imgbuild.input-digest": DIGEST.total,
        "imgbuild.repository": image.repository,
        "org.opencontainers.image.created": f"1970-01-01T00:00:{created:02}Z",
        **fields.get("labels", {}),
    }
    return StoredImage(name, fields.get("tags", image.tags), labels, created=created)


def _planned(
    image: Image,
    *stored: StoredImage,
    passed: Passed | None = True,
    test: bool = True,
    own: bool = True,
) -> PlanItem:
    """Return the plan of an image; ``own`` is what the records say of every stored image."""

    def verdict(_: Image, name: str) -> bool | None:
        return passed[name] if isinstance(passed, dict) else passed

    return make_plan([(image, DIGEST)], stored, verdict, lambda _: own, test=test)[0]


def _with_parts(image: Image, parts: dict[str, str]) -> StoredImage:
    """Return an image of other inputs that recorded these."""
    recorded = json.dumps({"form": 2, "parts": parts})
    return _stored(image, labels={"imgbuild.input-digest": "x", "imgbuild.inputs": recorded})


@pytest.mark.parametrize(
    ("named", "passed", "test", "action", "reason"),
    [
        (True, True, True, Action.NOTHING, "up to date"),
        (False, True, True, Action.TAG, "built, not tagged yet"),
        (True, None, True, Action.TEST, "built, not tested yet"),
        (False, None, True, Action.TEST, "built, not tested yet"),
        (True, False, True, Action.TEST, "built, its suites failed last time"),
        (True, None, False, Action.NOTHING, "up to date"),
        (False, None, False, Action.TAG, "built, not tagged yet"),
    ],
)
def test_what_is_to_be_done(  # noqa: PLR0913, PLR0917 - what is known of an image
    image: Image, named: bool, passed: bool | None, test: bool, action: Action, reason: str
) -> None:
    stored = _stored(image, tags=image.tags if named else ())
    item = _planned(image, stored, passed=passed, test=test)
    assert (item.action, item.reason, item.image_id) == (action, reason, "sha256:id")


@pytest.mark.parametrize(
    ("old", "reason"),
    [
        ({"lock": "0", "lock packages": "c==3,b==2"}, "lock: a nothing → 1 (+1 more)"),
        ({"stage os": "0", "stage gone": "1"}, "Dockerfile: stages gone, os"),
        ({"download downloads/x": "1"}, "download x 1 → nothing"),
        ({"base": "1", "stage os": "0"}, "base 1 → 2; Dockerfile: stage os"),
        ({"stage os": "0", f"locks/{FOLDER}/a-1.txt": "0"}, "Dockerfile: stage os"),
    ],
)
def test_changed_inputs_are_named(image: Image, old: dict[str, str], reason: str) -> None:
    """A layer of a lock is no change of its own."""
    item = _planned(image, _with_parts(image, {**PARTS, **old}))
    assert (item.action, item.reason) == (Action.BUILD, f"changed: {reason}")


def test_all_changes_are_there_for_programs(image: Image) -> None:
    old = {**PARTS, "lock": "0", "lock packages": "a==0,c==3"}
    assert _planned(image, _with_parts(image, old)).as_json()["changes"] == [
        {"input": "lock: a", "old": "0", "new": "1"},
        {"input": "lock: b", "old": None, "new": "2"},
        {"input": "lock: c", "old": "3", "new": None},
    ]


FORMER = '{"Dockerfile": "1", "base": "2", "files": "3"}'


@pytest.mark.parametrize("parts", ["no json", "[]", "1", '{"form": 2, "parts": 1}', FORMER])
def test_labels_of_another_form_only_cost_the_reason(image: Image, parts: str) -> None:
    labels = {"imgbuild.input-digest": "x", "imgbuild.inputs": parts}
    item = _planned(image, _stored(image, labels=labels))
    assert item.action is Action.BUILD
    assert item.reason == "built by an imgbuild version that recorded inputs in another format"
    labels["imgbuild.pin.tensorflow"] = "2.1.0"
    item = _planned(image, _stored(image, labels=labels))
    assert item.reason.startswith(f"changed: pin tensorflow 2.1.0 → {image.tensorflow}; ")


def test_which_image_of_the_engine_counts(image: Image) -> None:
    assert _planned(image).reason == "never built here"
    assert _planned(image, _stored(image, tags=image.tags[:1])).action is Action.TAG
    other = _stored(image, labels={"imgbuild.name": "tf-9"})
    assert _planned(image, other).action is Action.BUILD
    silent = _stored(image, labels={"imgbuild.input-digest": "x"})
    assert _planned(image, silent).reason == "its inputs were not recorded"
    own = _stored(image, "newer", tags=(f"{image.repository}:of-before",), created=2)
    item = _planned(image, own, _stored(image, "older", created=1))
    assert (item.action, item.image_id) == (Action.NOTHING, "older")


@pytest.mark.parametrize(
    ("older", "newer", "action", "counts"),
    [
        ((False, True), (False, False), Action.TAG, "older"),
        ((False, False), (False, True), Action.TAG, "newer"),
        ((False, True), (False, True), Action.TAG, "newer"),
        ((True, True), (False, True), Action.NOTHING, "older"),
        ((True, False), (False, True), Action.TEST, "older"),
    ],
)
def test_of_two_images_of_the_same_inputs(
    image: Image,
    older: tuple[bool, bool],
    newer: tuple[bool, bool],
    action: Action,
    counts: str,
) -> None:
    """The one with the name; else one that passed, though a newer one failed."""
    each = {"older": older, "newer": newer}
    stored = [
        _stored(image, name, tags=image.tags if named else (), created=number)
        for number, (name, (named, _)) in enumerate(each.items())
    ]
    item = _planned(image, *stored, passed={name: passed for name, (_, passed) in each.items()})
    assert (item.action, item.image_id) == (action, counts)


def test_a_name_of_a_longer_repository_is_somebody_elses() -> None:
    tags = ("a/b:1", "a/bc:1", "a/b/c:1", "host:5000/a/b:1", "a/b-x:1")
    assert our_tags(StoredImage("sha256:x", tags, {"imgbuild.repository": "a/b"})) == ("a/b:1",)
    assert our_tags(StoredImage("sha256:x", tags, {})) == ()


def test_an_image_on_top_was_created_at_another_time(image: Image) -> None:
    for created in (0, 1, -1):
        stored = replace(_stored(image), created=created)
        assert labels_are_consistent(stored) is (created == 0)


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("test", [True, False])
def test_labels_alone_make_no_image_own(image: Image, tagged: bool, test: bool) -> None:
    """Whoever makes an image writes its labels, and `docker tag` gives it any name."""
    forged = _stored(image, tags=image.tags if tagged else ())
    item = _planned(image, forged, test=test, own=False)
    assert (item.action, item.image_id) == (Action.BUILD, None)
    assert item.reason == "there is no record that this machine built it"
    changed = _with_parts(image, {**PARTS, "base": "1"})
    assert _planned(image, changed, own=False).reason == "never built here"
