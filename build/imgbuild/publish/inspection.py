"""Check a whole repository: its manifests, tags, records and signatures."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from imgbuild.errors import CheckFailedError
from imgbuild.matrix.images import all_images
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.tags import (
    INPUT_PREFIX,
    RECORD_SUFFIX,
    RELEASE,
    input_tag,
    planned_tags,
)
from imgbuild.parallel import in_parallel
from imgbuild.publish.provenance import configuration_of
from imgbuild.publish.record import PublishedRepository, Record
from imgbuild.publish.signed_image import SignedImage, record_differences
from imgbuild.publish.verification import IMAGE_KEYS, PublishedImage
from imgbuild.registry.repository import Manifest
from imgbuild.registry.repository_client import REQUESTS, RegistryClient
from imgbuild.registry.signing import Trust

#: The tags of cosign's signatures and attestations, and of the list of what refers to a manifest.
_SIGNATURE = re.compile(r"sha256-([0-9a-f]{64})(\.sig|\.att)?")
#: So many programs of cosign run at once.
_PROGRAMS = 4


@dataclass(frozen=True)
class Inspection:
    """A repository, and what it holds; ``trust`` is whose signatures count, if that is known."""

    registry: RegistryClient
    found: PublishedRepository
    trust: Trust | None
    matrix: Matrix

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each thing that no push of imgbuild leaves behind.

        Without ``trust``, signatures and provenance are not verified.
        """
        yield from self.found.faults()
        yield from self._unrecorded_tags()
        manifests: dict[str, Manifest] = {}
        digests = sorted({*self._digests.values(), *self._signed})
        for digest, manifest in zip(
            digests, in_parallel(self._read, digests, REQUESTS), strict=True
        ):
            if isinstance(manifest, Manifest):
                manifests[digest] = manifest
            elif manifest:
                yield self._sentence(digest, manifest)
        for digest in sorted(self._signed & manifests.keys()):
            if problem := self._foreign_part(manifests[digest]):
                yield self._sentence(digest, problem)
        if self.trust is None:
            return
        verify = partial(self._disproved, self.trust)
        published = self._signed | {record.digest for record in self.found.whole}
        images = [manifests[digest] for digest in sorted(published & manifests.keys())]
        for problems in in_parallel(verify, images, _PROGRAMS):
            yield from problems

    @cached_property
    def _digests(self) -> Mapping[str, str]:
        """The digest of every tag."""
        return self.registry.heads(self.found.tags)

    @cached_property
    def _signed(self) -> set[str]:
        """The digests that have a signature or an attestation, whoever made it."""
        matches = map(_SIGNATURE.fullmatch, self.found.tags)
        return {f"sha256:{match[1]}" for match in matches if match}

    @cached_property
    def _image_tags(self) -> Mapping[str, str]:
        """The digest of every tag that only images of imgbuild have."""
        known = {tag for record in self.found.records for tag in (record.tag, *record.moving)}
        known |= self._family_tags
        return {
            tag: digest
            for tag, digest in self._digests.items()
            if tag in known
            or tag.startswith(INPUT_PREFIX)
            or (RELEASE.search(tag) and not tag.endswith(RECORD_SUFFIX))
        }

    @cached_property
    def _family_tags(self) -> set[str]:
        """The moving tags of the matrix: somebody may have deleted the record that has one."""
        return {tag for image in all_images(self.matrix) for tag in planned_tags(image).moving}

    def _unrecorded_tags(self) -> Iterator[str]:
        """Yield a sentence for each tag by which images are pulled that is at an unknown one.

        Tags that a record names are among the faults of `PublishedRepository`.
        """
        whole = {record.digest for record in self.found.whole}
        named = {tag for record in self.found.records for tag in record.moving}
        expected = {input_tag(record.input_digest) for record in self.found.whole}
        expected |= self._family_tags - named
        for tag, digest in self._digests.items():
            if tag in expected and digest not in whole:
                yield f"{self.registry.name}:{tag} is at {digest}, which has no record."

    def _sentence(self, digest: str, problem: str) -> str:
        tags = [tag for tag, at in self._digests.items() if at == digest]
        signed = " It has a signature, which proves nothing." if digest in self._signed else ""
        return f"{self.registry.name}: {', '.join(tags) or digest}: {problem.rstrip('.')}.{signed}"

    def _read(self, digest: str) -> Manifest | str | None:
        """Return a manifest, or what is wrong with it; None if it is not there any more."""
        try:
            manifest = self.registry.manifest(digest)
            if manifest is None:
                return None
            manifest.document()
            if digest in self._image_tags.values():
                configuration_of(self.registry, manifest)
        except CheckFailedError as error:
            return str(error)
        return manifest

    def _foreign_part(self, manifest: Manifest) -> str:
        """Return why imgbuild would not sign a manifest; nothing if it would."""
        keys = sorted(manifest.document().keys() - IMAGE_KEYS)
        if keys:
            return f"it has {', '.join(keys)}, which no image of imgbuild has"
        if manifest.digest not in self._image_tags.values():
            return "no tag of an image of imgbuild points to it"
        return ""

    def _disproved(self, trust: Trust, manifest: Manifest) -> list[str]:
        """Return a sentence for each thing that the signed provenance of an image does not say."""
        image = PublishedImage(self.registry, manifest, "", trust, self.matrix, lambda _: None)
        problems: list[str] = []

        def check(tag: str, work: Callable[..., object], *arguments: object) -> None:
            try:
                work(*arguments)
            except CheckFailedError as error:
                text = str(error).rstrip(".")
                problems.append(f"{self.registry.name}: {tag}: {text}.")

        records = [one for one in self.found.whole if one.digest == manifest.digest]
        name = records[0].tag if records else manifest.digest
        try:
            trust.require_signature(image.reference)
            provenances = image.read_provenances()
        except CheckFailedError as error:
            return [f"{self.registry.name}: {name}: {error}"]
        for tag, digest in self._image_tags.items():
            if digest == manifest.digest:
                check(tag, image.require_tag, provenances, tag)
        for record in records:
            check(record.tag, self._require_signed_record, record, provenances)
            check(record.tag, image.require_same_retirement, record)
        check(name, image.require_configuration, provenances[-1])
        return problems

    def _require_signed_record(self, record: Record, provenances: Iterable[SignedImage]) -> None:
        """Return if one of the publications is the record's; CheckFailedError if none is."""
        fewest: list[str] = []
        for signed in provenances:
            different = [*record_differences(record, signed, self.matrix)]
            if not different:
                return
            if not fewest or len(different) < len(fewest):
                fewest = different
        raise CheckFailedError(
            f"its record differs from its signed provenance: {', '.join(fewest)}"
        )
