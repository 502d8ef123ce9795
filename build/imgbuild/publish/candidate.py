"""Decide which images may be pushed.

The image must have the inputs of this checkout. The checkout's suites must have passed in exactly
this image. The module :mod:`imgbuild.suites.results` decides which results a build needs.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from imgbuild.build.context import BuildContext
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.outcome import Outcome
from imgbuild.dockerfile.labels import (
    BASE,
    BASE_DIGEST,
    CPYTHON,
    INPUT_DIGEST,
    SNAPSHOT,
    STANDIN,
    SUBSTITUTES,
    TAKEN_WHEEL,
)
from imgbuild.engine.types import StoredImage
from imgbuild.locks.lockfile import locked_packages
from imgbuild.matrix.images import STANDIN_HOST, Image, planned_tags
from imgbuild.matrix.tags import PLACEHOLDER, PlannedTags
from imgbuild.net.signing import read_trust
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import NEEDS_GPU, SuiteResult

_NOT_SAID = "nowhere that its labels say"
#: The options that override an objection. The second one only works with `NEEDS_GPU`.
ALLOW_SUBSTITUTED, ALLOW_SKIPPED = "--allow-substituted", "--allow-skipped"


@dataclass(frozen=True)
class Objection:
    """The reason why an image is not published, and the option that overrides it, if any."""

    text: str
    allowed_by: str = ""


@dataclass(frozen=True)
class PushCandidate:
    """An image in the engine that may be pushed, with the results of its suites.

    ``allowed`` are the objections that options override.
    """

    image: Image
    stored: StoredImage
    input_digest: str
    report: Mapping[str, SuiteResult]
    allowed: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    work_seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.image.name

    @property
    def variant(self) -> str:
        return self.image.variant

    @property
    def stack(self) -> str:
        return self.image.stack

    @property
    def pins(self) -> dict[str, str]:
        return {pin.component: pin.version for pin in self.image.pins}

    @property
    def snapshots(self) -> dict[str, str]:
        return read_snapshots(self.stored)

    def tags(self, release: str = PLACEHOLDER) -> PlannedTags:
        """Return the image's tags for a release."""
        return planned_tags(self.image, release)


def read_snapshots(stored: StoredImage) -> dict[str, str]:
    """Return the snapshot times of archives, by distribution, from the image's labels."""
    snapshots: dict[str, str] = {}
    for name, time in stored.labels.items():
        if SNAPSHOT in name:
            snapshots[name.removeprefix(SNAPSHOT)] = time
    return snapshots


def check_allowed(allowed: Collection[str]) -> None:
    """Raise InputError if the options skip a suite that every machine can run."""
    known = {ALLOW_SUBSTITUTED, f"{ALLOW_SKIPPED} {NEEDS_GPU}"}
    for option in sorted({*allowed} - known):
        raise InputError(
            f"{option}: this suite cannot be skipped. Only {NEEDS_GPU} can, because not every "
            "machine can run it."
        )


def approve(context: BuildContext, allowed: Collection[str]) -> tuple[PushCandidate, ...]:
    """Return the images if all of them may be pushed; ``allowed`` are options as in `Objection`.

    CheckFailedError: an image may not be pushed; the message has all images and reasons.
    """
    candidates, refused = [], dict[str, list[str]]()
    trust = read_trust(context.settings)
    trusted = trust.fingerprint if trust else None
    for item in context.plan(test=True):
        name, image_id = item.image.name, item.image_id or ""
        stored = context.engine.inspect(image_id) if image_id else None
        report = context.store.results(image_id)
        keys = context.suite_keys[name]
        built = context.store.was_built_here(image_id)
        signed = trusted if context.store.signed_by(image_id) == trusted else None
        raised = [*find_objections(item, stored, report, keys, built=built, signed_by=signed)]
        reasons = refusals(raised, allowed)
        if reasons or stored is None:
            refused.setdefault("; ".join(reasons), []).append(name)
            continue
        candidate = PushCandidate(
            image=item.image,
            stored=stored,
            input_digest=item.digest.total,
            report={suite: report[suite] for suite in sorted(keys)},
            allowed=tuple(objection.text for objection in raised),
            packages=locked_packages(item.image, context.project.locks),
            work_seconds=context.store.work_seconds(image_id),
        )
        candidates.append(candidate)
    if refused:
        lines = []
        for why, names in refused.items():
            verb = "is" if len(names) == 1 else "are"
            lines.append(f"{', '.join(names)} {verb} not published: {why}.")
        raise CheckFailedError("\n".join(lines))
    return tuple(candidates)


def refusals(objections: Collection[Objection], allowed: Collection[str]) -> list[str]:
    """Return the objections that no given option overrides, each with the option that would."""
    refused = []
    for objection in objections:
        option = objection.allowed_by
        if option not in allowed:
            hint = f" ({option} publishes it)" if option else ""
            refused.append(f"{objection.text}{hint}")
    return refused


def find_objections(  # noqa: PLR0913 - the image and its results
    item: PlanItem,
    stored: StoredImage | None,
    report: Mapping[str, SuiteResult],
    keys: Mapping[str, str],
    *,
    built: bool,
    signed_by: str | None = None,
) -> Iterator[Objection]:
    """Yield all objections to pushing an image of a plan.

    ``report`` and ``built`` are from the `ReportStore`. ``keys`` are the keys of the suites that
    the image must have passed, from `suite_keys`. ``signed_by`` is the trusted signer of the image,
    if any. Results from this signer count like results of this machine.
    """
    absent = _absent(item, stored)
    if absent or stored is None:
        yield Objection(f"{absent}: run `imgbuild build`")
        return
    if STANDIN in stored.labels or item.image.repository.startswith(STANDIN_HOST):
        note = stored.labels.get(STANDIN, "this machine's settings say so").rstrip(".")
        yield Objection(f"it is built from stand-ins, which are never published ({note})")
    yield from substitute_objections(item.image, stored.labels, stored.labels.get(BASE_DIGEST, ""))
    anew = f"run `docker rmi --force {stored.id}`, then `imgbuild build`"
    # Write access to the repository of --pull must not be enough to publish an image.
    if not built and not signed_by:
        yield Objection(
            f"there is no record that this machine built it: {anew}, or `imgbuild build --pull` "
            "with `verify` in the settings"
        )
    elif not signed_by:
        yield from wheel_objections(stored.labels, anew)
    results = {suite: report[suite] for suite in keys if suite in report}
    yield from result_objections(results, signed_by, "run `imgbuild test --refresh`")
    if results:
        for suite, key in keys.items():
            yield from suite_objections(suite, results.get(suite), key, "run `imgbuild test`")
    else:
        yield Objection(f"no suite was run on this image ({stored.id}): run `imgbuild test`")
    if item.action is Action.TAG:
        yield Objection(
            "it passed but is not tagged, like an image that exceeds its budget: run `imgbuild "
            "build`"
        )


def _absent(item: PlanItem, stored: StoredImage | None) -> str:
    """Return why the engine has no image of this checkout, or an empty text."""
    if item.action is Action.BUILD:
        return f"no image has the inputs of this checkout ({item.reason})"
    if stored is None or stored.id != item.image_id:
        return "the image was removed from the engine in the meantime"
    if stored.labels.get(INPUT_DIGEST) != item.digest.total:
        return "the engine's image has other inputs than this checkout"
    return ""


def wheel_objections(labels: Mapping[str, str], anew: str) -> Iterator[Objection]:
    """Yield an objection if an earlier imgbuild pulled the Horovod wheel from a repository.

    ``anew`` tells the user how to compile it.
    """
    if TAKEN_WHEEL in labels:
        yield Objection(f"its Horovod wheel was not compiled on this machine: {anew}")


def result_objections(
    results: Mapping[str, SuiteResult], signed_by: str | None, again: str
) -> Iterator[Objection]:
    """Yield an objection to results from other machines, unless ``signed_by`` signed them."""
    origins: dict[str, str] = {}
    for suite, result in sorted(results.items()):
        is_signed = signed_by and result.signed_by == signed_by
        if result.origin is not None and not is_signed:
            origins[suite] = result.origin
    if origins:
        places = ", ".join(sorted({*origins.values()}))
        yield Objection(
            f"suites did not run on this machine, their results are from {places} "
            f"({', '.join(origins)}): {again}"
        )


def suite_objections(
    suite: str, result: SuiteResult | None, key: str, again: str
) -> Iterator[Objection]:
    """Yield why the current suite has not passed; ``again`` tells the user how to run it."""
    if result is None:
        yield Objection(f"suite {suite} was not run on this image: {again}")
    elif result.key != key:
        yield Objection(f"suite {suite} ran with older code, or with other pins: {again}")
    elif result.verdict != Outcome.PASSED:
        failed = [check.test for check in (*result.failures, *result.timed_out)]
        why = ", ".join([*failed, *result.skip_reasons]) or "nothing was checked"
        skipped = result.verdict in {Outcome.SKIPPED, Outcome.INCOMPLETE}
        option = f"{ALLOW_SKIPPED} {suite}" if skipped and suite == NEEDS_GPU else ""
        yield Objection(f"suite {suite} {result.verdict}: {why}", option)


def substitute_objections(
    image: Image, labels: Mapping[str, str], digest: str | None = None
) -> Iterator[Objection]:
    """Yield an objection for each input that differs from the matrix.

    ``digest`` is the digest of the system's base image; None if the labels do not have it.
    """
    origin = labels.get(BASE, _NOT_SAID)
    usual = "registry" if image.os.image else "bootstrapped"
    planned = image.os.image.rpartition("@")[2] if image.os.image else digest
    base = f"its base image {image.os_name} is substituted"
    if origin != usual:
        named = f" ({digest})" if digest else ""
        yield Objection(f"{base}: {origin}, not {usual}{named}", ALLOW_SUBSTITUTED)
    elif digest is not None and digest != planned:
        yield Objection(f"{base}: {digest}, not the matrix's", ALLOW_SUBSTITUTED)
    interpreter = labels.get(CPYTHON, _NOT_SAID)
    if interpreter != "source":
        text = f"its CPython is substituted: {interpreter}, not the pinned one"
        yield Objection(text, ALLOW_SUBSTITUTED)
    if labels.get(SUBSTITUTES):
        yield Objection(f"downloads are substituted: {labels[SUBSTITUTES]}", ALLOW_SUBSTITUTED)
