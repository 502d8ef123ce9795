"""Decide which images may be pushed: their suites passed in this very image, from these inputs.

Which results a build needs is decided in :mod:`imgbuild.suites.results`; here they must belong to
the image that would be pushed, for the suites of this checkout.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from imgbuild.build.context import BuildContext
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAMESPACE, STANDIN
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.publish.record import SuiteRecord
from imgbuild.suites.results import NEEDS_GPU, Verdict

#: Written by build/targets.py, in the words of plan/inputs.py.
BASE = f"{NAMESPACE}.input.base"
CPYTHON = f"{NAMESPACE}.input.cpython"
SUBSTITUTES = f"{NAMESPACE}.input.substitutes"
BASE_DIGEST = "org.opencontainers.image.base.digest"
_NOT_SAID = "nowhere that its labels say"
#: The suites without which an image can be published if that is said: they need what not every
#: machine has.
SKIPPABLE = (NEEDS_GPU,)
_STANDIN_HOST = "standin.invalid/"


@dataclass(frozen=True)
class Allowance:
    """What the command line allows beside what is right."""

    substituted: bool = False
    skipped: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse to allow what cannot be.

        Raises:
            InputError: a suite is none that can be left out.

        """
        for suite in self.skipped:
            if suite not in SKIPPABLE:
                raise InputError(
                    f"--allow-skipped {suite}: this suite cannot be left out. Only "
                    f"{', '.join(SKIPPABLE)} can, since not every machine can run it."
                )


@dataclass(frozen=True)
class PushCandidate:
    """An image that could be pushed: its plan, the engine's image, and what its suites found.

    ``report`` is what the :class:`~imgbuild.suites.results.ReportStore` holds for this image id;
    ``keys`` are those of the suites that it must have passed, as
    :func:`~imgbuild.suites.catalog.suite_keys` makes them. ``allowed`` says what is pushed only
    because an option allows it.
    """

    item: PlanItem
    stored: StoredImage | None
    report: Mapping[str, Any]
    keys: Mapping[str, str]
    allowed: tuple[str, ...] = ()

    @property
    def image(self) -> Image:
        """The image of the matrix."""
        return self.item.image

    @property
    def name(self) -> str:
        """Its name in the matrix."""
        return self.image.name

    @property
    def image_id(self) -> str:
        """The engine's id of it."""
        return self.item.image_id or ""

    def required_report(self) -> dict[str, Any]:
        """Return the results of the suites that it must have passed."""
        return {suite: self.report[suite] for suite in sorted(self.keys)}

    def suites(self) -> tuple[SuiteRecord, ...]:
        """Return the same in short, for its record."""
        return tuple(_suite_record(*pair) for pair in self.required_report().items())


def approve(context: BuildContext, allowance: Allowance) -> tuple[PushCandidate, ...]:
    """Return the images, all of which may be pushed.

    Raises:
        CheckFailedError: one may not; each of these is named, with every reason.
        InputError: the lock of an image is missing or damaged.
        MachineError: the engine does not answer.

    """
    approved, refused = [], []
    for item in context.plan(test=True):
        candidate = candidate_of(item, context)
        judgement = judge(candidate, allowance)
        if judgement.ok:
            approved.append(replace(candidate, allowed=judgement.allowed))
        else:
            reasons = "; ".join(judgement.refusals)
            refused.append(f"{candidate.name} is not published: {reasons}.")
    if refused:
        raise CheckFailedError("\n".join(refused))
    return tuple(approved)


def candidate_of(item: PlanItem, context: BuildContext) -> PushCandidate:
    """Return the engine's image of a plan item, and what is remembered of it."""
    return PushCandidate(
        item,
        context.engine.inspect(item.image_id) if item.image_id else None,
        context.store.document(item.image_id) if item.image_id else {},
        context.suite_keys[item.image.name],
    )


@dataclass(frozen=True)
class Judgement:
    """Why an image is not published, in words; and what was published only by allowance."""

    refusals: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it is published."""
        return not self.refusals


def judge(candidate: PushCandidate, allowance: Allowance) -> Judgement:
    """Return whether an image may be published, with every reason why not."""
    item, stored = candidate.item, candidate.stored
    absent = _absent(item, stored)
    if absent or stored is None:
        return Judgement((absent,))
    replaced = substitutes(item.image, stored.labels)
    skipped = tuple(_skipped(candidate))
    refusals = [*_standin(item.image, stored), *_unproved(candidate), *_unnamed(item)]
    if not allowance.substituted:
        refusals += [f"{one} (--allow-substituted publishes it)" for one in replaced]
    for suite, words in skipped:
        if suite not in allowance.skipped:
            refusals.append(f"{words} (--allow-skipped {suite} publishes it)")
    return Judgement(tuple(refusals), (*replaced, *(words for _, words in skipped)))


def _absent(item: PlanItem, stored: StoredImage | None) -> str:
    """Return why there is no image of what the checkout says now; nothing if there is one."""
    if item.action is Action.BUILD:
        return f"no image has the inputs of this checkout ({item.reason}): run `imgbuild build`"
    if stored is None or stored.id != item.image_id:
        return "the engine's image was removed meanwhile: run `imgbuild build`"
    if stored.labels.get(INPUT_DIGEST) != item.digest.total:
        return "the engine's image has other inputs than this checkout: run `imgbuild build`"
    return ""


def _standin(image: Image, stored: StoredImage) -> Iterator[str]:
    """Yield the one thing that nothing allows: upstreams that were stand-ins."""
    if STANDIN in stored.labels or image.repository.startswith(_STANDIN_HOST):
        note = stored.labels.get(STANDIN, "this machine's settings say so").rstrip(".")
        yield f"it is built from stand-ins, which are never published ({note})"


def _unnamed(item: PlanItem) -> Iterator[str]:
    if item.action is Action.NAME:
        yield "it passed and is not tagged, as an image over its budget: run `imgbuild build`"


def _unproved(candidate: PushCandidate) -> Iterator[str]:
    """Yield what was not found, or found to be wrong, in this very image."""
    report, stored = candidate.report, candidate.stored
    asked = [suite for suite in candidate.keys if _entry(report, suite)]
    if not asked:
        image_id = stored.id if stored else ""
        yield f"no suite was run on this image ({image_id}): run `imgbuild test`"
        return
    for suite, key in candidate.keys.items():
        entry = _entry(report, suite)
        if not entry:
            yield f"suite {suite} was not run on this image: run `imgbuild test`"
        elif entry.get("key") != key:
            yield f"suite {suite} ran in an earlier form, or with other pins: run `imgbuild test`"
        elif not _green(suite, entry):
            yield f"suite {suite} {_verdict(entry)}: {_said(entry) or 'nothing was checked'}"


def _skipped(candidate: PushCandidate) -> Iterator[tuple[str, str]]:
    """Yield the suites that were skipped as a whole and can be left out, with the reasons."""
    for suite in SKIPPABLE:
        entry = _entry(candidate.report, suite)
        if entry.get("key") == candidate.keys.get(suite, "") and _verdict(entry) == Verdict.SKIPPED:
            yield suite, f"suite {suite} skipped: {_said(entry)}"


def _green(suite: str, entry: Mapping[str, Any]) -> bool:
    """Return whether a suite passed; one that was skipped and may be is asked for by itself."""
    verdict = _verdict(entry)
    return verdict == Verdict.PASSED or (suite in SKIPPABLE and verdict == Verdict.SKIPPED)


def _verdict(entry: Mapping[str, Any]) -> str:
    return str(entry.get("verdict", "without a verdict"))


def _said(entry: Mapping[str, Any]) -> str:
    """Return which checks failed, and why others were skipped."""
    failed = [str(one["test"]) for one in entry.get("failures", ())]
    reasons = dict.fromkeys(str(one["reason"]) for one in entry.get("skipped", ()))
    return ", ".join([*failed, *reasons])


def _entry(report: Mapping[str, Any], suite: str) -> Mapping[str, Any]:
    entry = report.get(suite)
    return entry if isinstance(entry, dict) else {}


def _suite_record(suite: str, entry: Mapping[str, Any]) -> SuiteRecord:
    skips = entry.get("skipped", ())
    reasons = tuple(dict.fromkeys(str(one["reason"]) for one in skips))
    return SuiteRecord(suite, str(entry["verdict"]), int(entry["passed"]), len(skips), reasons)


def substitutes(image: Image, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return, in words, what was built in that is not what the matrix says."""
    return (*_base(image, labels), *_interpreter(labels), *_downloads(labels))


def _base(image: Image, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield another base: from elsewhere, or another digest than the matrix pins."""
    origin, digest = labels.get(BASE, _NOT_SAID), labels.get(BASE_DIGEST, "")
    usual = "registry" if image.os.image else "bootstrapped"
    if origin != usual:
        yield f"its base image {image.os_name} is substituted: {origin}, not {usual} ({digest})"
    elif image.os.image and image.os.image.rpartition("@")[2] != digest:
        yield f"its base image {image.os_name} is substituted: {digest}, not the matrix's"


def _interpreter(labels: Mapping[str, str]) -> Iterator[str]:
    origin = labels.get(CPYTHON, _NOT_SAID)
    if origin != "source":
        yield f"its CPython is substituted: {origin}, not the pinned one"


def _downloads(labels: Mapping[str, str]) -> Iterator[str]:
    if labels.get(SUBSTITUTES):
        yield f"downloads are substituted: {labels[SUBSTITUTES]}"
