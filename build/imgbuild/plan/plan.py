"""Decide the remaining work for each image, and the reason."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, NAME, REPOSITORY
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image
from imgbuild.plan.changes import Change, describe_changes, find_changes
from imgbuild.plan.digest import InputDigest

#: The reason if the engine has no version of the image.
NEVER_BUILT = "never built here"
#: The reason if the labels match, but anybody could have made the image.
NO_RECORD = "there is no record that this machine built it"
CREATED = "org.opencontainers.image.created"


class Action(StrEnum):
    """The work of a build for an image; each action includes those after it."""

    BUILD = "build"
    TEST = "test"
    TAG = "tag"
    NOTHING = "nothing"


@dataclass(frozen=True)
class PlanItem:
    """The work for one image, its reason, and the id of the image if it is already built.

    ``changes`` are the inputs that differ from the image that the build would replace.
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
    is_own: Callable[[str], bool],
    *,
    test: bool,
) -> tuple[PlanItem, ...]:
    """Return the remaining work for each image.

    ``stored`` are the engine's images with an input digest, tagged or not. Anybody can make an
    image with these labels, so only images for which ``is_own`` is true count. ``passed`` returns
    whether an image id passed its suites (None: unknown). ``test`` is false to skip the suites.
    """
    plan = []
    for image, digest in digests:
        # Images for another repository belong to another checkout.
        family = {NAME: image.name, REPOSITORY: image.repository}
        named = [candidate for candidate in stored if family.items() <= candidate.labels.items()]
        own = [candidate for candidate in named if is_own(candidate.id)]
        current = [candidate for candidate in own if _has_inputs(candidate, digest)]
        if current:
            verdicts = {candidate.id: passed(image, candidate.id) for candidate in current}
            item = _plan_built(image, digest, current, verdicts, test=test)
        elif not own and any(_has_inputs(candidate, digest) for candidate in named):
            item = PlanItem(image, digest, Action.BUILD, NO_RECORD)
        else:
            item = _plan_build(image, digest, own)
        plan.append(item)
    return tuple(plan)


def _plan_built(
    image: Image,
    digest: InputDigest,
    current: Sequence[StoredImage],
    verdicts: Mapping[str, bool | None],
    *,
    test: bool,
) -> PlanItem:
    """Return the remaining work for a built image; ``verdicts`` maps image ids to verdicts."""

    def rank(candidate: StoredImage) -> tuple[bool, bool, int]:
        return _is_tagged(image, candidate), verdicts[candidate.id] is True, candidate.created

    best = max(current, key=rank)
    verdict = verdicts[best.id]
    if test and not verdict:
        untested = "its suites failed last time" if verdict is False else "not tested yet"
        return PlanItem(image, digest, Action.TEST, f"built, {untested}", best.id)
    if not _is_tagged(image, best):
        return PlanItem(image, digest, Action.TAG, "built, not tagged yet", best.id)
    return PlanItem(image, digest, Action.NOTHING, "up to date", best.id)


def _plan_build(image: Image, digest: InputDigest, own: Sequence[StoredImage]) -> PlanItem:
    """Return the plan to build an image; ``own`` are the engine's versions with other inputs."""
    if not own:
        return PlanItem(image, digest, Action.BUILD, NEVER_BUILT)
    latest = max(own, key=lambda stored: (_is_tagged(image, stored), stored.created))
    changes = find_changes(latest.labels, image, digest)
    if changes:
        reason = f"changed: {describe_changes(changes)}"
    elif INPUT_PARTS in latest.labels:
        reason = "built by an imgbuild version that recorded inputs in another format"
    else:
        reason = "its inputs were not recorded"
    return PlanItem(image, digest, Action.BUILD, reason, changes=changes)


def _has_inputs(stored: StoredImage, digest: InputDigest) -> bool:
    return stored.labels.get(INPUT_DIGEST) == digest.total


def _is_tagged(image: Image, stored: StoredImage) -> bool:
    return {*image.tags} <= {*stored.tags}


def our_tags(image: StoredImage) -> tuple[str, ...]:
    """Return the tags that imgbuild set, without tags that somebody added."""
    repository = image.labels.get(REPOSITORY)
    return tuple(tag for tag in image.tags if tag.rpartition(":")[0] == repository)


def labels_are_consistent(image: StoredImage) -> bool:
    """Return whether the image has imgbuild's labels and the creation time that they state.

    An image built ``FROM`` an imgbuild image inherits every label, but has another time if it has
    another layer. Anybody can make an image with such labels and times, so use this only to list,
    compare or clean up images. To tag, test, start or publish an image, check
    `ReportStore.is_own`.
    """
    labels = image.labels
    try:
        created = datetime.fromisoformat(labels[CREATED]).timestamp()
    except (KeyError, ValueError):
        return False
    return NAME in labels and INPUT_DIGEST in labels and int(created) == image.created
