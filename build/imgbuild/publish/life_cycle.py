"""Retire published images, which deletes nothing, and delete old releases and what none needs.

Deletions are by digest, which takes every tag that is there with it; so nothing is deleted whose
digest a tag has that is to stay. What a registry does with the blobs is its own business.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.tags import INPUT_PREFIX, PUSH_PREFIX, VERDICTS_PREFIX, record_tag
from imgbuild.parallel import in_parallel
from imgbuild.publish.record import PublishedRepository, Record, put_record, read_published
from imgbuild.publish.signed_image import read_provenances
from imgbuild.registry.repository_client import REQUESTS, RegistryClient
from imgbuild.registry.signing import RETIREMENT, Signer, Trust

#: What belongs to a manifest and is found by its digest: cosign's signatures and attestations, and
#: the list of what refers to it. Source: cosign, "Signature specification"; OCI distribution
#: specification 1.1, "Referrers Tag Schema".
_OF_DIGEST = re.compile(r"sha256-([0-9a-f]{64})(\.[a-z]+)?")
#: The tags that a push writes beside those of the matrix, and `verdicts-` and `wheel-`, which
#: earlier versions wrote. Other tags that begin alike are somebody's own.
_WRITTEN = re.compile("(input|verdicts|wheel)-[0-9a-f]{16,64}|push(-[0-9a-f]{16,64}){2}")
#: Stands for the image of a tag that no release needs.
_NO_RELEASE = "no release"


def retire(  # noqa: PLR0913 - which images, why, and who signs that
    registry: RegistryClient,
    tags: Collection[str],
    reason: str,
    today: date,
    *,
    signer: Signer | None = None,
    trust: Trust | None = None,
) -> list[str]:
    """Retire the images at these tags; return their immutable tags.

    The records say so, and the signer attests it. If the signer has a key, its own signature counts
    in place of ``trust``: the images must have a signed provenance with these tags.

    InputError: a tag is of no published image; an image is signed and nobody signs this, or the
    other way round; nobody is trusted. Then nothing is written.
    CheckFailedError: the provenance of an image is not trusted. Then nothing is written.
    """
    found = read_published(registry)
    retired: dict[str, Record] = {}
    for tag in tags:
        records = [one for one in found.whole if found.digests.get(tag) == one.digest]
        if not records:
            raise InputError(
                f"{tag}: {found.name} has no published image with this tag. `imgbuild published` "
                "lists them."
            )
        retired |= {one.tag: one for one in records}
    signed = [tag for tag, record in retired.items() if _is_signed(found, record.digest)]
    _check_signer(retired, signed, signer, trust)
    if signer and (trust := signer.trust if signer.key else trust):
        for tag in signed:
            _require_provenance(trust, found.name, retired[tag])
    day = f"{today:%Y-%m-%d}"
    predicate = json.dumps({"retired": day, "reason": reason}).encode()
    attested: set[str] = set()
    for tag, record in retired.items():
        image = registry.manifest(record.digest)
        if image is None:
            raise CheckFailedError(f"{found.name}:{tag} was deleted meanwhile.")
        if signer and record.digest not in attested:
            signer.attest(f"{found.name}@{record.digest}", {RETIREMENT: predicate})
            attested.add(record.digest)
        put_record(registry, replace(record, retired=day, retired_reason=reason), image)
    return [*retired]


def _check_signer(
    retired: Collection[str], signed: Collection[str], signer: Signer | None, trust: Trust | None
) -> None:
    """Raise InputError unless every retirement is to be signed, or none.

    A retirement that is not signed could be taken back by whoever may write to the repository.
    """
    if signer is None:
        if signed:
            raise InputError(
                f"{', '.join(signed)}: signed, so the retirement must be signed. Otherwise anyone "
                "who may write to the repository could undo it. Give --sign-key KEY or "
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
            "--sign-keyless: nothing says whose signatures count, so the retirement of any image "
            "that a record names would be signed. Set verify: {identity: …, issuer: …} in "
            "imgbuild.local.yaml."
        )


def _is_signed(found: PublishedRepository, digest: str) -> bool:
    """Return whether a repository has a signature of an image, or an attestation."""
    stem = digest.replace(":", "-")
    return not {f"{stem}.sig", f"{stem}.att"}.isdisjoint(found.tags)


def _require_provenance(trust: Trust, repository: str, record: Record) -> None:
    """Return if an image is the one that its record names, by its signed provenance.

    A record is not signed: by a rewritten one, the retirement of another image would be signed.
    """
    reference = f"{repository}@{record.digest}"
    provenances = read_provenances(trust.attested(reference, "slsaprovenance1"))
    for signed in provenances:
        if signed.image == record.image and signed.tag in {None, record.tag}:
            return
    names = ", ".join(signed.tag or signed.image for signed in provenances)
    raise CheckFailedError(
        f"{reference}: its signed provenance says {names}, and its record says {record.tag}. "
        "Nothing was retired. `imgbuild published --check` says more."
    )


@dataclass(frozen=True)
class Pruning:
    """What of a repository is old: all but the latest ``keep`` releases of every image.

    With them go the tags of `_WRITTEN` that no release needs.
    """

    registry: RegistryClient
    keep: int

    @cached_property
    def found(self) -> PublishedRepository:
        return read_published(self.registry)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        return self.registry.heads(self.found.tags)

    @cached_property
    def old(self) -> tuple[Record, ...]:
        """The records of what goes, the oldest first; those without their image, too."""
        latest: dict[str, list[Record]] = {}
        for record in reversed(self.found.whole):
            latest.setdefault(record.image, []).append(record)
        stay = {one.digest for records in latest.values() for one in records[: self.keep]}
        stay |= self._held
        return tuple(one for one in self.found.records if one.digest not in stay)

    def tags(self) -> dict[str, str]:
        """Return the tags that go, in the order of their deletion, and of which image each is.

        Records are the last: by them, the next run finds what this one did not come to.
        """
        gone = {one.digest: one.tag for one in self.old}
        subjects = self._subjects()
        beside, images = {}, {}
        for tag, digest in self.digests.items():
            signed = _OF_DIGEST.fullmatch(tag)
            about = f"sha256:{signed[1]}" if signed else subjects.get(tag, "")
            if about in gone:
                beside[tag] = gone[about]
            elif tag.startswith((INPUT_PREFIX, PUSH_PREFIX)) and digest in gone:
                images[tag] = gone[digest]
        images |= {one.tag: one.tag for one in self.old if self.digests.get(one.tag) == one.digest}
        records = {record_tag(one.tag): one.tag for one in self.old}
        return {**beside, **self._unneeded(subjects, {*beside, *images}), **images, **records}

    def run(self) -> Iterator[str]:
        """Delete what `tags` says; yield each tag when its manifest is gone."""
        going = self.tags()
        staying = [tag for tag in self.registry.tags() if tag not in going]  # moved meanwhile, too
        held = {*self.registry.heads(staying).values()}
        for tag in going:
            digest = self.digests.get(tag)
            if digest and digest not in held:
                self.registry.delete(digest)
                yield tag

    @cached_property
    def _held(self) -> set[str]:
        """The digests that stay for a tag: a moving one, or one that is not imgbuild's."""
        ours = {one.tag for one in self.found.records}
        ours |= {record_tag(tag) for tag in ours}
        return {
            digest
            for tag, digest in self.digests.items()
            if tag not in ours and not _OF_DIGEST.fullmatch(tag) and not _WRITTEN.fullmatch(tag)
        }

    def _subjects(self) -> dict[str, str]:
        """Return the digest of the image that results of suites are of, by their tag."""
        tags = [tag for tag in self.digests if tag.startswith(VERDICTS_PREFIX)]
        found = in_parallel(self.registry.manifest, tags, REQUESTS)
        return {tag: one.subject for tag, one in zip(tags, found, strict=True) if one}

    def _unneeded(self, subjects: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
        """Return the tags that no release needs, except ``known`` ones, which go with theirs."""
        old = {one.tag for one in self.old}
        stay = {one.digest for one in self.found.whole if one.tag not in old} | self._held
        return {
            tag: _NO_RELEASE
            for tag, digest in self.digests.items()
            if _WRITTEN.fullmatch(tag)
            and tag not in known
            and digest not in stay
            and subjects.get(tag) not in stay
        }
