"""The arrow digest → Plan: for each image, what has to be done and why. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, NAME
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image
from imgbuild.plan.changes import Change, changes_since, described
from imgbuild.plan.digest import InputDigest
from imgbuild.suites.results import Verdict


class Action(StrEnum):
    """What a build has to do for an image; each includes what comes after it."""

    BUILD = "build"
    TEST = "test"
    NAME = "name"
    NOTHING = "nothing"


@dataclass(frozen=True)
class PlanItem:
    """One image: what is to be done, why, and the image the engine has already, if any.

    ``changes`` are the inputs that are others than those of the image that it would replace.
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


def open_rows(
    digests: Sequence[tuple[Image, InputDigest]], stored: Sequence[StoredImage]
) -> frozenset[str]:
    """Return the names of the images that no stored one settles by having its digest and names.

    Whatever else there is of the others changes nothing.
    """
    return frozenset(
        image.name
        for image, digest in digests
        if not any(
            one.labels.get(NAME) == image.name
            and one.labels.get(INPUT_DIGEST) == digest.total
            and _is_named(image, one)
            for one in stored
        )
    )


def make_plan(
    digests: Sequence[tuple[Image, InputDigest]],
    stored: Sequence[StoredImage],
    verdict: Callable[[str], Verdict],
    *,
    test: bool = True,
) -> tuple[PlanItem, ...]:
    """Return what has to be done for each image.

    ``stored`` are the engine's images that carry an input digest, named or not; ``verdict`` tells
    what is known of an image id's suites; ``test`` is false if suites are not wanted.
    """
    named: dict[str, list[StoredImage]] = {}
    for one in stored:
        named.setdefault(one.labels.get(NAME, ""), []).append(one)
    return tuple(
        _plan_one(image, digest, named.get(image.name, ()), verdict, test)
        for image, digest in digests
    )


def _plan_one(
    image: Image,
    digest: InputDigest,
    mine: Sequence[StoredImage],
    verdict: Callable[[str], Verdict],
    test: bool,
) -> PlanItem:
    same = [c for c in mine if c.labels.get(INPUT_DIGEST) == digest.total]
    if not same:
        return _to_build(image, digest, mine)
    best = max(
        same, key=lambda c: (_is_named(image, c), verdict(c.id) is Verdict.PASSED, c.created)
    )
    known = verdict(best.id)
    if test and known is not Verdict.PASSED:
        failed = "its suites failed last time" if known is Verdict.FAILED else "not tested yet"
        return PlanItem(image, digest, Action.TEST, f"built, {failed}", best.id)
    if not _is_named(image, best):
        return PlanItem(image, digest, Action.NAME, "built, has no name yet", best.id)
    return PlanItem(image, digest, Action.NOTHING, "up to date", best.id)


def _is_named(image: Image, candidate: StoredImage) -> bool:
    return {*image.tags} <= {*candidate.tags}


def _to_build(image: Image, digest: InputDigest, mine: Sequence[StoredImage]) -> PlanItem:
    if not mine:
        return PlanItem(image, digest, Action.BUILD, "never built here")
    latest = max(mine, key=lambda c: (_is_named(image, c), c.created))
    changes = changes_since(latest.labels, image, digest)
    reason = f"changed: {described(changes)}" if changes else _unknown(latest)
    return PlanItem(image, digest, Action.BUILD, reason, changes=changes)


def _unknown(latest: StoredImage) -> str:
    """Say why it cannot be told what changed."""
    if INPUT_PARTS in latest.labels:
        return "another imgbuild built it, which recorded its inputs in another form"
    return "its inputs were not recorded"
