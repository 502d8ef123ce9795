"""Decide what has to be done for each image, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, NAME
from imgbuild.engine.types import HistoryEntry, StoredImage
from imgbuild.matrix.images import Image
from imgbuild.plan.changes import Change, changes_since, described
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.ownership import is_own, is_surely_own


class Action(StrEnum):
    """What a build has to do for an image; each includes what comes after it."""

    BUILD = "build"
    TEST = "test"
    NAME = "name"
    NOTHING = "nothing"


@dataclass(frozen=True)
class PlanItem:
    """One image: what is to be done, why, and the image the engine has already, if any.

    ``changes`` are the inputs that differ from those of the image that it would replace.
    """

    image: Image
    digest: InputDigest
    action: Action
    reason: str
    image_id: str | None = None
    changes: tuple[Change, ...] = ()

    @property
    def busy(self) -> bool:
        """Whether anything is to be done."""
        return self.action is not Action.NOTHING

    def as_json(self) -> dict[str, Any]:
        """Return what ``--plan --json`` prints."""
        return {
            "image": self.image.name,
            "action": str(self.action),
            "reason": self.reason,
            "changes": [change.as_json() for change in self.changes],
            "input_digest": self.digest.total,
            "image_id": self.image_id,
        }


def make_plan(
    digests: Sequence[tuple[Image, InputDigest]],
    stored: Sequence[StoredImage],
    passed: Callable[[Image, str], bool | None],
    history: Callable[[str], Sequence[HistoryEntry]],
    *,
    test: bool = True,
) -> tuple[PlanItem, ...]:
    """Return what has to be done for each image.

    ``stored`` are the engine's images that carry an input digest, tagged or not; ``passed`` says
    whether an image id passed its suites (None: not known), ``history`` which instructions made it.
    ``test`` is false if no suites are to run.
    """
    own: dict[str, list[StoredImage]] = {}
    for one in _own_images(digests, stored, history):
        own.setdefault(one.labels[NAME], []).append(one)
    return tuple(
        _plan_one(image, digest, own.get(image.name, ()), passed, test) for image, digest in digests
    )


def _own_images(
    digests: Sequence[tuple[Image, InputDigest]],
    stored: Sequence[StoredImage],
    history: Callable[[str], Sequence[HistoryEntry]],
) -> list[StoredImage]:
    """Return imgbuild's own images.

    A history costs a call to the engine, and untagged images are usual: it is asked only where no
    image that is surely own is the current one.
    """
    sure = [one for one in stored if is_surely_own(one)]
    unclear = {
        image.name
        for image, digest in digests
        if not any(_is_of(image, digest, one) and _is_tagged(image, one) for one in sure)
    }
    return [
        one
        for one in stored
        if is_surely_own(one) or (one.labels.get(NAME) in unclear and is_own(one, history))
    ]


def _plan_one(
    image: Image,
    digest: InputDigest,
    mine: Sequence[StoredImage],
    passed: Callable[[Image, str], bool | None],
    test: bool,
) -> PlanItem:
    same = [one for one in mine if _is_of(image, digest, one)]
    if not same:
        return _to_build(image, digest, mine)
    verdicts = {one.id: passed(image, one.id) for one in same}
    best = max(
        same, key=lambda one: (_is_tagged(image, one), verdicts[one.id] is True, one.created)
    )
    known = verdicts[best.id]
    if test and known is not True:
        failed = "its suites failed last time" if known is False else "not tested yet"
        return PlanItem(image, digest, Action.TEST, f"built, {failed}", best.id)
    if not _is_tagged(image, best):
        return PlanItem(image, digest, Action.NAME, "built, not tagged yet", best.id)
    return PlanItem(image, digest, Action.NOTHING, "up to date", best.id)


def _is_of(image: Image, digest: InputDigest, stored: StoredImage) -> bool:
    labels = stored.labels
    return labels.get(NAME) == image.name and labels.get(INPUT_DIGEST) == digest.total


def _is_tagged(image: Image, stored: StoredImage) -> bool:
    return {*image.tags} <= {*stored.tags}


def _to_build(image: Image, digest: InputDigest, mine: Sequence[StoredImage]) -> PlanItem:
    if not mine:
        return PlanItem(image, digest, Action.BUILD, "never built here")
    latest = max(mine, key=lambda one: (_is_tagged(image, one), one.created))
    changes = changes_since(latest.labels, image, digest)
    if changes:
        reason = f"changed: {described(changes)}"
    elif INPUT_PARTS in latest.labels:
        reason = "built by an imgbuild that recorded its inputs in another form"
    else:
        reason = "its inputs were not recorded"
    return PlanItem(image, digest, Action.BUILD, reason, changes=changes)
