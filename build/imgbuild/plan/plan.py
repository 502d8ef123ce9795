"""Decide what has to be done for each image, and why; tell imgbuild's own images from others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, NAME, REPOSITORY
from imgbuild.engine.types import HistoryEntry, StoredImage
from imgbuild.matrix.images import Image
from imgbuild.plan.changes import Change, changes_since, described
from imgbuild.plan.digest import InputDigest

#: The reason of an image that the engine has in no form.
NEVER_BUILT = "never built here"
CREATED = "org.opencontainers.image.created"
#: Gives an image's steps, the newest first, at the cost of a call to the engine.
History = Callable[[str], Sequence[HistoryEntry]]


class Action(StrEnum):
    """What a build has to do for an image; each includes what comes after it."""

    BUILD = "build"
    TEST = "test"
    TAG = "tag"
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
    def has_work(self) -> bool:
        return self.action is not Action.NOTHING

    def as_json(self) -> dict[str, Any]:
        return {
            "image": self.image.name,
            "action": str(self.action),
            "reason": self.reason,
            "changes": [change._asdict() for change in self.changes],
            "input_digest": self.digest.total,
            "image_id": self.image_id,
        }


def make_plan(
    digests: Sequence[tuple[Image, InputDigest]],
    stored: Sequence[StoredImage],
    passed: Callable[[Image, str], bool | None],
    history: History,
    *,
    test: bool,
) -> tuple[PlanItem, ...]:
    """Return what has to be done for each image.

    ``stored`` are the engine's images that carry an input digest, tagged or not; those that were
    built for another repository are another family's. ``passed`` says whether an image id passed
    its suites (None: not known). ``test`` is false if no suites are to run.
    """
    families = {image.repository for image, _ in digests}
    stored = [one for one in stored if one.labels.get(REPOSITORY) in families]
    sure = [one for one in stored if _says_so(one) and own_names(one)]
    # A history is asked for only where no image that is surely own is the current one: untagged
    # images are usual.
    unclear = {
        image.name
        for image, digest in digests
        if not any(_is_of(image, digest, one) and _is_tagged(image, one) for one in sure)
    }
    own = [
        one
        for one in stored
        if one in sure or (one.labels.get(NAME) in unclear and is_own(one, history))
    ]
    return tuple(_plan_one(image, digest, own, passed, test) for image, digest in digests)


def _plan_one(
    image: Image,
    digest: InputDigest,
    own: Sequence[StoredImage],
    passed: Callable[[Image, str], bool | None],
    test: bool,
) -> PlanItem:
    mine = [one for one in own if one.labels[NAME] == image.name]
    verdicts = {one.id: passed(image, one.id) for one in mine if _is_of(image, digest, one)}
    if not verdicts:
        return _to_build(image, digest, mine)
    best = max(
        (one for one in mine if one.id in verdicts),
        key=lambda one: (_is_tagged(image, one), verdicts[one.id] is True, one.created),
    )
    known = verdicts[best.id]
    if test and not known:
        failed = "its suites failed last time" if known is False else "not tested yet"
        return PlanItem(image, digest, Action.TEST, f"built, {failed}", best.id)
    if not _is_tagged(image, best):
        return PlanItem(image, digest, Action.TAG, "built, not tagged yet", best.id)
    return PlanItem(image, digest, Action.NOTHING, "up to date", best.id)


def _to_build(image: Image, digest: InputDigest, mine: Sequence[StoredImage]) -> PlanItem:
    if not mine:
        return PlanItem(image, digest, Action.BUILD, NEVER_BUILT)
    latest = max(mine, key=lambda one: (_is_tagged(image, one), one.created))
    changes = changes_since(latest.labels, image, digest)
    if changes:
        reason = f"changed: {described(changes)}"
    elif INPUT_PARTS in latest.labels:
        reason = "built by an imgbuild that recorded its inputs in another form"
    else:
        reason = "its inputs were not recorded"
    return PlanItem(image, digest, Action.BUILD, reason, changes=changes)


def _is_of(image: Image, digest: InputDigest, stored: StoredImage) -> bool:
    labels = stored.labels
    return labels.get(NAME) == image.name and labels.get(INPUT_DIGEST) == digest.total


def _is_tagged(image: Image, stored: StoredImage) -> bool:
    return {*image.tags} <= {*stored.tags}


def own_names(image: StoredImage) -> tuple[str, ...]:
    """Return the names that imgbuild gave; others that somebody added are not among them."""
    repository = image.labels.get(REPOSITORY)
    return tuple(tag for tag in image.tags if tag.rpartition(":")[0] == repository)


def is_own(image: StoredImage, history: History) -> bool:
    """Return whether imgbuild built the image, rather than somebody on top of one.

    Labels alone do not tell: an image ``FROM`` one of these inherits every label. What it cannot
    inherit is the time of creation: an image of imgbuild was created at the epoch of its matrix,
    which is in its labels. An image that adds settings but no layer inherits even that; its history
    goes on after that of the image that it is from, and it has no name of imgbuild's.
    """
    return _says_so(image) and (bool(own_names(image)) or not _goes_on(history(image.id)))


def _says_so(image: StoredImage) -> bool:
    """Return whether the labels are imgbuild's, and the time of creation is what they say."""
    labels = image.labels
    try:
        created = datetime.fromisoformat(labels[CREATED]).timestamp()
    except (KeyError, ValueError):
        return False
    return NAME in labels and INPUT_DIGEST in labels and int(created) == image.created


def _goes_on(history: Sequence[HistoryEntry]) -> bool:
    """Return whether there is more after the labels than a Dockerfile of imgbuild has.

    True without a history, which an image that is gone has: it is nobody's.
    """
    later: list[str] = []
    for entry in history:
        if entry.made_by.startswith("LABEL ") and f"{NAME}=" in entry.made_by:
            return len({*later}) < len(later) or not {*later} <= {"ENTRYPOINT", "CMD"}
        later.append(entry.made_by.partition(" ")[0])
    return not history
