"""Compare the input digests of images with those at another revision."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imgbuild.ci.digests import CheckoutDigests, other_checkout
from imgbuild.ci.revision import revision
from imgbuild.dockerfile.labels import INPUT_PARTS, pin_labels
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image, whole_family
from imgbuild.plan.changes import changes_since, described, parts_label
from imgbuild.project import Project
from imgbuild.settings import Settings

#: What GitHub and GitLab call the revision before a branch's first: only zeros.
_NO_REVISION = {"0"}
_SHA = 40


@dataclass(frozen=True)
class Changes:
    """The reasons why images changed, by name; notes for the user.

    ``gone`` are images that the revision had and the checkout has not.
    """

    reasons: Mapping[str, str]
    gone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def changes_between(
    now: CheckoutDigests,
    family: tuple[Image, ...],
    reference: str,
    project: Project,
    settings: Settings,
) -> Changes:
    """Return the images of ``now`` that differ from those at ``reference``.

    ``family`` are all images of the checkout's matrix, to know which are gone. A revision whose
    matrix this imgbuild cannot read makes every image a changed one.

    Raises:
        InputError: there is no such revision here.
        MachineError: there is no git.

    """
    if len(reference) >= _SHA and {*reference} == _NO_REVISION:
        reason = "there is no revision before this one"
        return Changes(dict.fromkeys(now.images, reason), notes=(_every(reference, reason),))
    with revision(project, reference) as then:
        try:
            before = _read(then, settings, project)
        except InputError as error:
            first = str(error).replace(f"{then.root}/", "").splitlines()[0]
            why = f"this imgbuild cannot read what is there: {first}"
            reason = f"nothing can be compared with {reference}"
            return Changes(dict.fromkeys(now.images, reason), notes=(_every(reference, why),))
    names = {image.name for image in family}
    gone = tuple(name for name in before.images if name not in names)
    return Changes(dict(_changed(now, before, reference)), gone)


def _read(then: Project, settings: Settings, here: Project) -> CheckoutDigests:
    from imgbuild.matrix.load import load_matrix  # noqa: PLC0415 - it takes its time

    return other_checkout(then, whole_family(load_matrix(then.matrix)), settings, here)


def _every(reference: str, why: str) -> str:
    return f"--changed-since {reference}: every image counts as changed: {why}"


def _changed(
    now: CheckoutDigests, before: CheckoutDigests, reference: str
) -> Iterator[tuple[str, str]]:
    for name in now.images:
        if name not in before.images:
            yield name, f"new: not in {reference}"
        elif name in before.unreadable:
            yield name, f"it cannot be compared with {reference}: {before.unreadable[name]}"
        elif now.digests[name].total != before.digests[name].total:
            yield name, _reason(name, now, before)


def _reason(name: str, now: CheckoutDigests, before: CheckoutDigests) -> str:
    """Return the inputs that differ, as ``build --plan`` prints them."""
    then = {**pin_labels(before.images[name]), INPUT_PARTS: parts_label(before.digests[name])}
    found = described(changes_since(then, now.images[name], now.digests[name]))
    return f"changed: {found or 'an input that cannot be named'}"
