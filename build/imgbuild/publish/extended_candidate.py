"""Decide which images of `imgbuild extend` may be pushed, and under which names.

These images have no digest of inputs, and the matrix has no tags for them. Their suites are those
of the image of the matrix that they are based on, as far as `imgbuild extend` ran them.
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
#: The start of the tags that cosign writes.
_SIGNATURE_PREFIX = "sha256-"
_AGAIN = "run `imgbuild extend` again"


@dataclass(frozen=True)
class ExtendedCandidate:
    """An image of `imgbuild extend` that may be pushed, with the suites that passed in it.

    ``reference`` is its name in the engine, ``family`` the image of the matrix that it is based on,
    if any; ``not_run`` are suites of that image that did not run. ``allowed`` says what is pushed
    only because an option allows it.
    """

    reference: str
    stored: StoredImage
    family: Image | None
    report: Mapping[str, SuiteResult]
    not_run: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    #: Nobody has to build it in CI.
    work_seconds: float = 0.0

    @property
    def name(self) -> str:
        """The name with which every release is published, such as ``train:1``."""
        return self.reference.rpartition("/")[2]

    def tags(self, release: str = PLACEHOLDER) -> PlannedTags:
        """Return its tags in one release."""
        tag = split_reference(self.reference)[1]
        return PlannedTags(f"{tag}-{release}", (tag,))

    @property
    def input_digest(self) -> str:
        """The digest of its layers and labels, which are the same on every engine."""
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
        """The pins of its base, whose labels it has inherited."""
        labels = sorted(self.stored.labels.items())
        return {
            name.removeprefix(_PIN): version for name, version in labels if name.startswith(_PIN)
        }

    @property
    def snapshots(self) -> dict[str, str]:
        return read_snapshots(self.stored)

    @property
    def base(self) -> str:
        """The base by its digest: that of its registry, else its id in the engine."""
        name = self.stored.labels.get(BASE_NAME, "").partition("@")[0]
        return f"{name}@{self.stored.labels.get(BASE_DIGEST, '')}"

    @property
    def lock(self) -> str:
        """The digest of the lock of the added packages; empty if it adds none."""
        return self.stored.labels.get(ADDED_LOCK, "")


Candidate = PushCandidate | ExtendedCandidate


def check_names(references: Sequence[str], repository: str) -> None:
    """Raise InputError unless images of these names can be published in a repository.

    The repository has the name of the image, and the tags are free for it.
    """
    last = repository.rpartition("/")[2]
    for reference in references:
        path, tag, digest = split_reference(reference)
        name = path.rpartition("/")[2]
        if digest or not tag:
            raise InputError(f"{reference}: name the image with its tag, such as me/train:1.")
        if name != last:
            raise InputError(
                f"{reference}: the repository of an extended image must end in its name, {name}. "
                f"{repository} does not. Give --to HOST/…/{name}, or call the image "
                f"{last}:{tag}: docker tag {reference} {last}:{tag}."
            )
        if reason := _tag_refusal(tag):
            raise InputError(
                f"{reference}: the tag {tag} {reason}. Choose another one: imgbuild extend --tag."
            )
    names = [reference.rpartition("/")[2] for reference in references]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise InputError(
            f"{', '.join(references)}: several would be published as {twice}. Push one of them."
        )


def _tag_refusal(tag: str) -> str:
    """Return why a repository has no such tag of an extended image; empty if it may."""
    if tag.startswith((*RESERVED_PREFIXES, _SIGNATURE_PREFIX)) or tag.endswith(RECORD_SUFFIX):
        return "is reserved for pushes, signatures or records"
    if RELEASE.search(tag):
        return "contains a release, but a push adds its own"
    longest = LONGEST_TAG - len(f"-{LONGEST_RELEASE}{RECORD_SUFFIX}")
    return f"has more than {longest} characters" if len(tag) > longest else ""


def check_repository(published: PublishedRepository, references: Sequence[str]) -> None:
    """Raise InputError for a repository with images of a family, whose tags could be moved."""
    family = next((record for record in published.records if not record.base), None)
    if family:
        raise InputError(
            f"{', '.join(references)}: {published.name} has images of a family, such as "
            f"{family.image}. Publish extended images in a repository of their own."
        )


def approve_extended(
    references: Sequence[str], context: BuildContext, allowed: Collection[str]
) -> tuple[ExtendedCandidate, ...]:
    """Return images of the engine, all of which may be pushed; ``allowed`` as in `approve`.

    InputError: the engine has no such image. CheckFailedError: one may not be pushed; each of these
    is named, with every reason.
    """
    candidates, refused = [], []
    for reference in references:
        stored = context.engine.need(reference)
        recorded = context.store.extension(stored.id) if EXTENDS in stored.labels else None
        if recorded is None:
            refused.append(
                f"{reference} is not published: there is no record that `imgbuild extend` built it "
                f"on this machine: {_AGAIN}."
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
    """Return the keys, as `suite_keys`, of the suites that such an image must pass, or had to."""
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
    """Yield every objection to an image of `imgbuild extend`.

    ``recorded`` and ``report`` are what the `ReportStore` holds for its id; ``keys`` are those of
    all suites of the image of the matrix that it is based on.
    """
    if STANDIN in stored.labels:
        note = stored.labels[STANDIN].rstrip(".")
        yield Objection(f"its base is built from stand-ins, which are never published ({note})")
    if recorded.family and family is None:
        yield Objection(f"the matrix of this checkout has no {recorded.family}, its base")
    if recorded.cached_base:
        yield Objection(
            "nothing says who made its base: build the base here, or set `verify` to a key that "
            f"signs it, then {_AGAIN}"
        )
    # Also without a family: somebody may have installed more on an image of it.
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
    for suite, result in ran.items():  # other suites ran by --test all, or by `imgbuild test`
        if suite not in recorded.suites and result.verdict != Outcome.PASSED:
            yield from suite_objections(suite, result, result.key, _AGAIN)
