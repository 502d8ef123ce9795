"""Decide which images of `imgbuild extend` may be pushed, and under which names.

These images have no input digest and no tags in the matrix. Their suites are the suites of their
base in the matrix that `imgbuild extend` ran.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from imgbuild.build.context import BuildContext
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.files import json_sha256
from imgbuild.core.outcome import Outcome
from imgbuild.dockerfile.labels import (
    ADDED_LOCK,
    BASE_DIGEST,
    BASE_NAME,
    EXTENDS,
    NAMESPACE,
    STANDIN,
)
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.tags import (
    INDEX_SUFFIX,
    LONGEST_RELEASE,
    LONGEST_TAG,
    PLACEHOLDER,
    RECORD_SUFFIX,
    RELEASE,
    RESERVED_PREFIXES,
    PlannedTags,
)
from imgbuild.net.repository import split_reference
from imgbuild.publish.candidate import (
    Objection,
    PushCandidate,
    read_snapshots,
    refusals,
    result_objections,
    substitute_objections,
    suite_objections,
    wheel_objections,
)
from imgbuild.publish.record import PublishedRepository
from imgbuild.suites.catalog import read_suites, select_required, suite_keys
from imgbuild.suites.results import SuiteResult
from imgbuild.suites.store import RecordedExtension

_PIN = f"{NAMESPACE}.pin."
#: The prefix of the tags that cosign writes.
_SIGNATURE_PREFIX = "sha256-"
_AGAIN = "run `imgbuild extend` again"


@dataclass(frozen=True)
class ExtendedCandidate:
    """An image of `imgbuild extend` that may be pushed, with the suites that passed in it.

    ``reference`` is its name in the engine. ``family`` is its base in the matrix, if any, and
    ``not_run`` are the base's suites that did not run. ``allowed`` are the objections that options
    override.
    """

    reference: str
    stored: StoredImage
    family: Image | None
    report: Mapping[str, SuiteResult]
    not_run: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    #: Always 0, because CI does not build extended images.
    work_seconds: float = 0.0

    @property
    def name(self) -> str:
        """The name of all its releases, for example ``train:1``."""
        return self.reference.rpartition("/")[2]

    def tags(self, release: str = PLACEHOLDER) -> PlannedTags:
        """Return the image's tags for a release."""
        tag = split_reference(self.reference)[1]
        return PlannedTags(f"{tag}-{release}", (tag,))

    @property
    def input_digest(self) -> str:
        """A digest of its layers and labels, which are the same in every engine."""
        labels = sorted(self.stored.labels.items())
        return f"sha256:{json_sha256([self.stored.layers, labels])}"

    @property
    def variant(self) -> str:
        return self.family.variant if self.family else ""

    @property
    def stack(self) -> str:
        return self.family.stack if self.family else ""

    @property
    def pins(self) -> dict[str, str]:
        """The pins of its base, from the inherited labels."""
        labels = sorted(self.stored.labels.items())
        return {
            name.removeprefix(_PIN): version for name, version in labels if name.startswith(_PIN)
        }

    @property
    def snapshots(self) -> dict[str, str]:
        return read_snapshots(self.stored)

    @property
    def base(self) -> str:
        """The base with its digest in the registry, or its id in the engine."""
        name = self.stored.labels.get(BASE_NAME, "").partition("@")[0]
        return f"{name}@{self.stored.labels.get(BASE_DIGEST, '')}"

    @property
    def lock(self) -> str:
        """The digest of the lock of the added packages; empty if it adds none."""
        return self.stored.labels.get(ADDED_LOCK, "")


Candidate = PushCandidate | ExtendedCandidate


def check_names(references: Sequence[str], repository: str) -> None:
    """Raise InputError unless images with these names can be published in a repository.

    The repository must end in the name of the image, and the tags must not be reserved.
    """
    last = repository.rpartition("/")[2]
    for reference in references:
        path, tag, digest = split_reference(reference)
        name = path.rpartition("/")[2]
        if digest or not tag:
            raise InputError(f"{reference}: give the image with its tag, for example me/train:1.")
        if name != last:
            raise InputError(
                f"{reference}: the repository of an extended image must end in its name, {name}, "
                f"but {repository} does not. Give --to HOST/…/{name}, or rename the image: docker "
                f"tag {reference} {last}:{tag}."
            )
        if reason := _tag_refusal(tag):
            raise InputError(
                f"{reference}: the tag {tag} {reason}. Choose another one: imgbuild extend --tag."
            )
    names = [reference.rpartition("/")[2] for reference in references]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise InputError(
            f"{', '.join(references)}: several images would be published as {twice}. Push only one "
            "of them."
        )


def _tag_refusal(tag: str) -> str:
    """Return why an extended image cannot have this tag; empty if it can."""
    suffixes = (RECORD_SUFFIX, INDEX_SUFFIX)
    if tag.startswith((*RESERVED_PREFIXES, _SIGNATURE_PREFIX)) or tag.endswith(suffixes):
        return "is reserved for pushes, signatures, records or indexes"
    if RELEASE.search(tag):
        return "contains a release, but a push adds its own"
    longest = LONGEST_TAG - len(f"-{LONGEST_RELEASE}{RECORD_SUFFIX}")
    return f"has more than {longest} characters" if len(tag) > longest else ""


def check_repository(published: PublishedRepository, references: Sequence[str]) -> None:
    """Raise InputError if the repository has images of a matrix, whose tags could be moved."""
    family = next((record for record in published.records if not record.base), None)
    if family:
        raise InputError(
            f"{', '.join(references)}: {published.name} has images from a matrix.yaml, for example "
            f"{family.image}. Publish extended images in a separate repository."
        )


def approve_extended(
    references: Sequence[str], context: BuildContext, allowed: Collection[str]
) -> tuple[ExtendedCandidate, ...]:
    """Return images in the engine if all of them may be pushed; ``allowed`` as in `approve`.

    InputError: the engine does not have an image.
    CheckFailedError: an image may not be pushed; the message has all images and reasons.
    """
    candidates, refused = [], []
    for reference in references:
        stored = context.engine.need(reference)
        recorded = context.store.extension(stored.id) if EXTENDS in stored.labels else None
        if recorded is None:
            refused.append(
                f"{reference} is not published: there is no record that `imgbuild extend` built it "
                f"on this machine; {_AGAIN}."
            )
            continue
        family = _family(recorded, context)
        report = context.store.results(stored.id)
        keys = _suite_keys(recorded, context)
        raised = [*find_extension_objections(stored, family, recorded, report, keys)]
        if reasons := refusals(raised, allowed):
            refused.append(f"{reference} is not published: {'; '.join(reasons)}.")
            continue
        passed: dict[str, SuiteResult] = {}
        not_run: list[str] = []
        for suite, key in sorted(keys.items()):
            if suite in report and report[suite].key == key:
                passed[suite] = report[suite]
            else:
                not_run.append(suite)
        candidate = ExtendedCandidate(
            reference=reference,
            stored=stored,
            family=family,
            report=passed,
            not_run=tuple(not_run),
            allowed=tuple(objection.text for objection in raised),
            packages=recorded.expected.get("packages", {}),
        )
        candidates.append(candidate)
    if refused:
        raise CheckFailedError("\n".join(refused))
    return tuple(candidates)


def _family(recorded: RecordedExtension, context: BuildContext) -> Image | None:
    images = all_images(context.images[0].matrix)
    return next((image for image in images if image.name == recorded.family), None)


def _suite_keys(recorded: RecordedExtension, context: BuildContext) -> dict[str, str]:
    """Return the `suite_keys` of all suites that the image must pass now or had to pass before."""
    if not recorded.expected:
        return {}
    suites = read_suites(context.project.suites)
    usual = {suite.name for suite in select_required(suites, recorded.expected)}
    own = [suite for suite in suites if suite.name in usual | {*recorded.suites}]
    return suite_keys(own, recorded.expected)


def find_extension_objections(
    stored: StoredImage,
    family: Image | None,
    recorded: RecordedExtension,
    report: Mapping[str, SuiteResult],
    keys: Mapping[str, str],
) -> Iterator[Objection]:
    """Yield all objections to pushing an image of `imgbuild extend`.

    ``recorded`` and ``report`` are from the `ReportStore`. ``keys`` has the keys of all suites of
    its base in the matrix.
    """
    if STANDIN in stored.labels:
        note = stored.labels[STANDIN].rstrip(".")
        yield Objection(f"its base is built from stand-ins, which are never published ({note})")
    if recorded.family and family is None:
        yield Objection(f"the matrix of this checkout has no {recorded.family}, its base")
    if recorded.cached_base:
        yield Objection(
            "the origin of its base is unknown: build the base on this machine, or set `verify` to "
            f"the key that signed it, then {_AGAIN}"
        )
    # Check this also without a base in the matrix: the base may derive from such an image.
    yield from wheel_objections(stored.labels, f"build the base again, then {_AGAIN}")
    if family:
        yield from substitute_objections(family, stored.labels)
        if not recorded.suites:
            yield Objection(f"no suite was run in it: {_AGAIN}, without --no-test")
    ran = {suite: result for suite, result in report.items() if suite in keys}
    yield from result_objections(ran, None, _AGAIN)
    for suite in recorded.suites:
        if suite not in keys:
            yield Objection(f"the checkout no longer has a suite {suite}: {_AGAIN}")
        else:
            yield from suite_objections(suite, report.get(suite), keys[suite], _AGAIN)
    for suite, result in ran.items():  # with --test all or `imgbuild test`, other suites also ran
        if suite not in recorded.suites and result.verdict != Outcome.PASSED:
            yield from suite_objections(suite, result, result.key, _AGAIN)
