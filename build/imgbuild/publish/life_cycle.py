"""Retire published images without deleting them, and delete old releases and unneeded tags.

Deleting a digest removes all its tags, so a digest is kept as long as one tag must stay. Registries
free the space of unused blobs themselves.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.parallel import in_parallel
from imgbuild.matrix.tags import (
    INDEX_SUFFIX,
    INPUT_PREFIX,
    PUSH_PREFIX,
    VERDICTS_PREFIX,
    index_tag,
    record_tag,
)
from imgbuild.net.repository_client import REQUESTS, RegistryClient
from imgbuild.net.signing import RETIREMENT, Signer, Trust
from imgbuild.publish.record import PublishedRepository, Record, put_record, read_published
from imgbuild.publish.release_index import listed_digests
from imgbuild.publish.signed_image import read_provenances

#: Tags that belong to the manifest of a digest: cosign's signatures and attestations, and the list
#: of referrers. Source: cosign, "Signature specification"; OCI distribution specification 1.1,
#: "Referrers Tag Schema".
_OF_DIGEST = re.compile(r"sha256-([0-9a-f]{64})(\.[a-z]+)?")
#: Tags that a push writes in addition to the matrix's tags. Earlier versions wrote `verdicts-` and
#: `wheel-`. Other tags with these prefixes belong to users.
_WRITTEN = re.compile("(input|verdicts|wheel)-[0-9a-f]{16,64}|push(-[0-9a-f]{16,64}){2}")
#: Replaces the image's name for tags that no release needs.
_NO_RELEASE = "no release"


def retire(  # noqa: PLR0913 - the images, the reason and the signer
    registry: RegistryClient,
    tags: Collection[str],
    reason: str,
    today: date,
    *,
    signer: Signer | None = None,
    trust: Trust | None = None,
) -> list[str]:
    """Retire the images at these tags; return their immutable tags.

    Write the retirement into the records, and let the signer attest it. Signed images must have a
    trusted provenance with these tags. If the signer has a key, that key is trusted instead of
    ``trust``. These errors are raised before anything is written:

    InputError: a tag has no published image, there is no trusted signer, or only one of image and
        retirement is signed.
    CheckFailedError: the provenance of an image is not trusted.
    """
    published = read_published(registry)
    retired: dict[str, Record] = {}
    for tag in tags:
        records = _records_at(registry, published, tag)
        if not records:
            raise InputError(
                f"{tag}: {published.name} has no published image with this tag. `imgbuild "
                "published` lists them."
            )
        retired |= {record.tag: record for record in records}
    signed = [tag for tag, record in retired.items() if _is_signed(published, record.digest)]
    _check_signer(retired, signed, signer, trust)
    if signer and signer.key:
        trust = signer.trust
    if signer and trust:
        for tag in signed:
            _require_provenance(trust, published.name, retired[tag])
    day = f"{today:%Y-%m-%d}"
    retirement = {"retired": day, "reason": reason}
    predicate = json.dumps(retirement).encode()
    attested: set[str] = set()
    for tag, record in retired.items():
        image = registry.manifest(record.digest)
        if image is None:
            raise CheckFailedError(f"{published.name}:{tag} was deleted in the meantime.")
        if signer and record.digest not in attested:
            signer.attest(f"{published.name}@{record.digest}", {RETIREMENT: predicate})
            attested.add(record.digest)
        put_record(registry, replace(record, retired=day, retired_reason=reason), image)
    return [*retired]


def _records_at(registry: RegistryClient, published: PublishedRepository, tag: str) -> list[Record]:
    """Return the records of the image that a tag points to, or of all images of an index."""
    digest = published.digests.get(tag, "")
    members = _listed(registry, digest) if digest else set()
    digests = members or {digest}
    records = [record for record in published.whole if record.digest in digests]
    if missing := members - {record.digest for record in records}:
        raise InputError(
            f"{tag}: {published.name} has no record of {', '.join(sorted(missing))}, which is one "
            "of its images. Retire the other images by their own tags."
        )
    return records


def _check_signer(
    retired: Collection[str], signed: Collection[str], signer: Signer | None, trust: Trust | None
) -> None:
    """Raise InputError unless signed images get a signed retirement, and unsigned images do not.

    Anyone with write access to the repository could undo an unsigned retirement.
    """
    if signer is None:
        if signed:
            raise InputError(
                f"{', '.join(signed)}: signed, so the retirement must be signed. Otherwise anyone "
                "with write access to the repository could undo it. Give --sign-key KEY or "
                "--sign-keyless."
            )
        return
    if unsigned := [tag for tag in retired if tag not in signed]:
        raise InputError(
            f"{', '.join(unsigned)}: not signed, so its retirement cannot be signed. Retire "
            "unsigned images separately, without a signer. If it was signed, somebody has deleted "
            "its signature and its attestations."
        )
    if not signer.key and trust is None:
        raise InputError(
            "--sign-keyless: there is no trusted identity to verify the image, and its record can "
            "be forged. Set verify: {identity: …, issuer: …} in imgbuild.local.yaml."
        )


def _is_signed(published: PublishedRepository, digest: str) -> bool:
    """Return whether the repository has a signature or an attestation of an image."""
    stem = digest.replace(":", "-")
    return not {f"{stem}.sig", f"{stem}.att"}.isdisjoint(published.tags)


def _require_provenance(trust: Trust, repository: str, record: Record) -> None:
    """Raise CheckFailedError unless the image's signed provenance confirms its record.

    Records are not signed. A forged record could otherwise retire another image.
    """
    reference = f"{repository}@{record.digest}"
    predicates = trust.read_attestations(reference, "slsaprovenance1")
    provenances = read_provenances(predicates)
    for signed in provenances:
        if signed.image == record.image and signed.tag in {None, record.tag}:
            return
    names = ", ".join(signed.tag or signed.image for signed in provenances)
    raise CheckFailedError(
        f"{reference}: its signed provenance says {names}, but its record says {record.tag}. "
        "Nothing was retired. Run `imgbuild release list --check` for details."
    )


def find_old(
    registry: RegistryClient,
    published: PublishedRepository,
    digests: Mapping[str, str],
    keep: int,
) -> tuple[Record, ...]:
    """Return the records of all but the latest ``keep`` releases per image, oldest first.

    The result includes records without an image, but not images that keep another tag. ``digests``
    has the digests of all tags in the repository.
    """
    latest: dict[str, list[Record]] = {}
    for record in reversed(published.whole):
        latest.setdefault(record.image, []).append(record)
    staying = _held_digests(registry, published, digests)
    for records in latest.values():
        staying |= {record.digest for record in records[:keep]}
    return tuple(record for record in published.records if record.digest not in staying)


def tags_to_delete(
    registry: RegistryClient,
    published: PublishedRepository,
    digests: Mapping[str, str],
    old: Collection[Record],
) -> dict[str, str]:
    """Return the tags to delete with old records, in order, with the image that each belongs to.

    The result includes tags of `_WRITTEN` that no release needs, and the indexes of deleted images.
    Records come last, so that the next run can resume after an interrupt.
    """
    gone = {record.digest: record.tag for record in old}
    indexes = _old_indexes(registry, published, gone)
    gone |= indexes
    subjects = _read_subjects(registry, digests)
    beside: dict[str, str] = {}
    images: dict[str, str] = {}
    for tag, digest in digests.items():
        match = _OF_DIGEST.fullmatch(tag)
        subject = f"sha256:{match[1]}" if match else subjects.get(tag, "")
        if subject in gone:
            beside[tag] = gone[subject]
        elif digest in indexes and tag.endswith(INDEX_SUFFIX):
            beside[tag] = gone[digest]
        elif tag.startswith((INPUT_PREFIX, PUSH_PREFIX)) and digest in gone:
            images[tag] = gone[digest]
    present = [record.tag for record in old if digests.get(record.tag) == record.digest]
    images |= {tag: tag for tag in present}
    old_tags = {record.tag for record in old}
    needed = _held_digests(registry, published, digests)
    needed |= {record.digest for record in published.whole if record.tag not in old_tags}
    unneeded: dict[str, str] = {}
    for tag, digest in digests.items():
        is_needed = digest in needed or subjects.get(tag) in needed
        is_known = tag in beside or tag in images
        if _WRITTEN.fullmatch(tag) and not is_needed and not is_known:
            unneeded[tag] = _NO_RELEASE
    records = {record_tag(record.tag): record.tag for record in old}
    return {**beside, **unneeded, **images, **records}


def _old_indexes(
    registry: RegistryClient, published: PublishedRepository, gone: Mapping[str, str]
) -> dict[str, str]:
    """Return the digests of the indexes with deleted images, with the tag of one of these images.

    ``gone`` has the tags of the deleted images by digest.
    """
    indexes: dict[str, str] = {}
    for record in published.records:
        digest = published.index(record)
        for member in _listed(registry, digest) if digest else ():
            if member in gone:
                indexes[digest] = gone[member]
    return indexes


def delete_tags(
    registry: RegistryClient, tags: Collection[str], digests: Mapping[str, str]
) -> Iterator[str]:
    """Delete the manifests at these tags, in order; yield each tag after its deletion.

    ``digests`` has the digests of the tags when they were chosen. A digest with another tag stays.
    """
    staying = [tag for tag in registry.tags() if tag not in tags]  # read again: tags may have moved
    present = registry.heads(staying)
    held = {*present.values()}
    held |= _members(registry, {own for tag, own in present.items() if digests.get(tag) != own})
    for tag in tags:
        digest = digests.get(tag)
        if digest and digest not in held:
            registry.delete(digest)
            yield tag


def _held_digests(
    registry: RegistryClient, published: PublishedRepository, digests: Mapping[str, str]
) -> set[str]:
    """Return the digests that stay because of a moving tag or a tag that imgbuild did not write.

    An index holds its images.
    """
    ours = {record.tag for record in published.records}
    ours |= {record_tag(tag) for tag in ours} | {index_tag(tag) for tag in ours}
    held: set[str] = set()
    for tag, digest in digests.items():
        is_written = _OF_DIGEST.fullmatch(tag) or _WRITTEN.fullmatch(tag)
        if tag not in ours and not is_written:
            held.add(digest)
    return held | _members(registry, held - {record.digest for record in published.whole})


def _members(registry: RegistryClient, digests: Iterable[str]) -> set[str]:
    """Return the digests of the images in those of the manifests that are indexes."""
    listed = in_parallel(lambda digest: _listed(registry, digest), [*digests], REQUESTS)
    return set().union(*listed)


def _listed(registry: RegistryClient, digest: str) -> set[str]:
    manifest = registry.manifest(digest)
    return listed_digests(manifest) if manifest else set()


def _read_subjects(registry: RegistryClient, tags: Iterable[str]) -> dict[str, str]:
    """Return the image digests that tags with suite results refer to, by tag."""
    verdicts = [tag for tag in tags if tag.startswith(VERDICTS_PREFIX)]
    manifests = in_parallel(registry.manifest, verdicts, REQUESTS)
    pairs = zip(verdicts, manifests, strict=True)
    return {tag: manifest.subject for tag, manifest in pairs if manifest}
