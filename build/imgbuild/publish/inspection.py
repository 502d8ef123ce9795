"""Check a whole repository: its manifests, tags, records and signatures."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from imgbuild.core.errors import CheckFailedError
from imgbuild.core.parallel import in_parallel
from imgbuild.matrix.images import all_images, planned_tags, with_other_architectures
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.tags import INDEX_SUFFIX, INPUT_PREFIX, RECORD_SUFFIX, RELEASE, input_tag
from imgbuild.net.repository import Manifest
from imgbuild.net.repository_client import REQUESTS, RegistryClient
from imgbuild.net.signing import Trust
from imgbuild.publish.provenance import read_configuration
from imgbuild.publish.record import PublishedRepository, Record
from imgbuild.publish.release_index import is_index, listed_digests, member_tag, read_index
from imgbuild.publish.signed_image import SignedImage, record_differences
from imgbuild.publish.verification import IMAGE_KEYS, PublishedImage

#: The tags of cosign's signatures and attestations, and of the referrers list of a manifest.
_SIGNATURE = re.compile(r"sha256-([0-9a-f]{64})(\.sig|\.att)?")
#: The number of cosign processes that run in parallel.
_PROGRAMS = 4


def inspect_repository(
    registry: RegistryClient,
    published: PublishedRepository,
    matrix: Matrix,
    trust: Trust | None,
) -> Iterator[str]:
    """Yield a sentence for each fault in a repository.

    ``trust`` names the trusted signers. Without it, signatures and provenance are not verified.
    """
    digests = registry.heads(published.tags)
    signed = _signed_digests(published.tags)
    # Take moving tags also from the matrix, because somebody may have deleted their record.
    family = with_other_architectures(all_images(matrix))
    family_tags = {tag for image in family for tag in planned_tags(image).moving}
    image_tags = _image_tags(published, digests, family_tags)

    def describe(digest: str, problem: str) -> str:
        tags = [tag for tag, tagged in digests.items() if tagged == digest]
        note = " It has a signature, which was not verified." if digest in signed else ""
        return f"{registry.name}: {', '.join(tags) or digest}: {problem.rstrip('.')}.{note}"

    yield from published.faults()
    yield from _unrecorded_tags(published, digests, family_tags)
    image_digests = {*image_tags.values()}
    read = partial(_read_manifest, registry, image_digests)
    manifests: dict[str, Manifest] = {}
    present = sorted({*digests.values(), *signed})
    for digest, manifest in zip(present, in_parallel(read, present, REQUESTS), strict=True):
        if isinstance(manifest, Manifest):
            manifests[digest] = manifest
        elif manifest:
            yield describe(digest, manifest)
    indexes = {digest for digest in image_digests & manifests.keys() if is_index(manifests[digest])}
    for digest in sorted((signed | indexes) & manifests.keys()):
        tags = [tag for tag, tagged in image_tags.items() if tagged == digest]
        if digest in indexes:
            problems = _index_problems(registry, manifests[digest], tags, published, trust)
        else:
            problems = _foreign_parts(manifests[digest], image_digests, published)
        yield from map(partial(describe, digest), problems)
    yield from _misused_index_tags(published.name, image_tags, manifests.keys() - indexes)
    if trust is None:
        return

    def disprove(digest: str) -> list[str]:
        image = PublishedImage(registry, manifests[digest], "", trust, matrix, lambda _: None)
        records = [record for record in published.whole if record.digest == digest]
        own = {digest, *map(published.index, records)}
        tags = [tag for tag, tagged in image_tags.items() if tagged in own]
        tags = [tag for tag in tags if not _is_index_tag(tag)]
        return _find_problems(image, records, tags)

    judged = signed | {record.digest for record in published.whole}
    judged -= {digest for digest, manifest in manifests.items() if is_index(manifest)}
    for disproved in in_parallel(disprove, sorted(judged & manifests.keys()), _PROGRAMS):
        yield from disproved


def _signed_digests(tags: Iterable[str]) -> set[str]:
    """Return the digests with a signature or an attestation of any signer."""
    matches = map(_SIGNATURE.fullmatch, tags)
    return {f"sha256:{match[1]}" for match in matches if match}


def _image_tags(
    published: PublishedRepository, digests: Mapping[str, str], family_tags: Collection[str]
) -> dict[str, str]:
    """Return the digests of the tags that only imgbuild's images can have."""
    known = {*family_tags}
    for record in published.records:
        known |= {record.tag, *record.moving}
    image_tags: dict[str, str] = {}
    for tag, digest in digests.items():
        is_release = RELEASE.search(tag) and not tag.endswith(RECORD_SUFFIX)
        if tag in known or tag.startswith(INPUT_PREFIX) or is_release:
            image_tags[tag] = digest
    return image_tags


def _unrecorded_tags(
    published: PublishedRepository, digests: Mapping[str, str], family_tags: Collection[str]
) -> Iterator[str]:
    """Yield a sentence for each moving tag or input tag of an image without a record.

    `PublishedRepository.faults` covers the moving tags that a record names.
    """
    whole = {record.digest for record in published.whole}
    whole |= {published.index(record) for record in published.whole}
    expected = {*family_tags}
    for record in published.records:
        expected -= {*record.moving}
    expected |= {input_tag(record.input_digest) for record in published.whole}
    for tag, digest in digests.items():
        if tag in expected and digest not in whole:
            yield f"{published.name}:{tag} is at {digest}, which has no record."


def _read_manifest(
    registry: RegistryClient, image_digests: Collection[str], digest: str
) -> Manifest | str | None:
    """Return a manifest, or a text about its fault; None if it was deleted in the meantime."""
    try:
        manifest = registry.manifest(digest)
        if manifest is None:
            return None
        manifest.document()
        if digest in image_digests and is_index(manifest):
            read_index(manifest)
        elif digest in image_digests:
            read_configuration(registry, manifest)
    except CheckFailedError as error:
        return str(error)
    return manifest


def _misused_index_tags(
    repository: str, image_tags: Mapping[str, str], others: Collection[str]
) -> Iterator[str]:
    """Yield a sentence for each tag of an index that points to another manifest."""
    for tag, digest in image_tags.items():
        if _is_index_tag(tag) and digest in others:
            yield f"{repository}:{tag} is at {digest}, which is not an index."


def _is_index_tag(tag: str) -> bool:
    return bool(RELEASE.search(tag)) and tag.endswith(INDEX_SUFFIX)


def _index_problems(
    registry: RegistryClient,
    manifest: Manifest,
    tags: Iterable[str],
    published: PublishedRepository,
    trust: Trust | None,
) -> Iterator[str]:
    """Yield why an index is not the signed index of a release; ``tags`` point to it."""
    index_tags = [tag for tag in tags if tag.endswith(INDEX_SUFFIX)]
    if not index_tags:
        yield "it is an index, but no tag of a release's index points to it"
    recorded = {record.tag: record.digest for record in published.whole}
    for tag in index_tags:
        for platform, digest in read_index(manifest).items():
            own = member_tag(tag, platform)
            if recorded.get(own) != digest:
                yield f"its image for {platform} is {digest}, which is not the published {own}"
    if trust:
        try:
            trust.require_signature(f"{registry.name}@{manifest.digest}")
        except CheckFailedError as error:
            yield str(error)


def _foreign_parts(
    manifest: Manifest, image_digests: Collection[str], published: PublishedRepository
) -> Iterator[str]:
    """Yield why imgbuild would not sign a manifest, if there is a reason.

    An index of published images without a tag is the rest of an interrupted push.
    """
    listed = listed_digests(manifest)
    if listed and listed <= {record.digest for record in published.whole}:
        return
    keys = sorted(manifest.document().keys() - IMAGE_KEYS)
    if keys:
        yield f"its manifest has {', '.join(keys)}, which images of imgbuild do not have"
    elif manifest.digest not in image_digests:
        yield "no tag of an image of imgbuild points to it"


def _find_problems(
    image: PublishedImage, records: Sequence[Record], tags: Iterable[str]
) -> list[str]:
    """Return a sentence for each tag, record or configuration that contradicts the provenance."""
    repository = image.registry.name
    problems: list[str] = []

    def check(tag: str, work: Callable[..., object], *arguments: object) -> None:
        try:
            work(*arguments)
        except CheckFailedError as error:
            text = str(error).rstrip(".")
            problems.append(f"{repository}: {tag}: {text}.")

    name = records[0].tag if records else image.manifest.digest
    try:
        image.trust.require_signature(image.reference)
        provenances = image.provenances
    except CheckFailedError as error:
        return [f"{repository}: {name}: {error}"]
    for tag in tags:
        check(tag, image.require_tag, provenances, tag)
    for record in records:
        check(record.tag, _require_signed_record, record, provenances, image.matrix)
        check(record.tag, image.require_same_retirement, record)
    check(name, image.require_configuration, provenances[-1])
    return problems


def _require_signed_record(
    record: Record, provenances: Iterable[SignedImage], matrix: Matrix
) -> None:
    """Raise CheckFailedError unless the record matches one of the publications."""
    fewest: list[str] = []
    for signed in provenances:
        different = [*record_differences(record, signed, matrix)]
        if not different:
            return
        if not fewest or len(different) < len(fewest):
            fewest = different
    raise CheckFailedError(f"its record differs from its signed provenance: {', '.join(fewest)}")
