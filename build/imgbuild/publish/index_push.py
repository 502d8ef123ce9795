"""Plan and write the index of a release, which lists its images for all platforms.

The other image may come from another machine, and its record is not signed. So the names of its
tags come from the matrix, and a signed index only lists an image whose signed provenance agrees
with its record.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from imgbuild.core.errors import CheckFailedError
from imgbuild.engine.types import AMD64
from imgbuild.matrix.images import Image, planned_tags
from imgbuild.matrix.tags import index_tag
from imgbuild.net.repository import DamagedError, Manifest
from imgbuild.net.repository_client import RegistryClient
from imgbuild.net.signing import RETIREMENT, Signer, Trust
from imgbuild.publish.attachments import is_attached
from imgbuild.publish.existing import existing_record, later_images, other_image
from imgbuild.publish.extended_candidate import Candidate
from imgbuild.publish.record import Record, read_published
from imgbuild.publish.release_index import (
    INDEX_TYPE,
    PlannedIndex,
    differing_versions,
    index_content,
    is_index,
    read_index,
)
from imgbuild.publish.signed_image import read_trusted_provenances, record_differences


@dataclass(frozen=True)
class IndexWriter:
    """Writes the indexes of one push; ``signer`` and ``trust`` are as in `Push`."""

    registry: RegistryClient
    signer: Signer | None = None
    trust: Trust | None = None

    def plan(
        self, image: Candidate, record: Record, manifest: Manifest | None
    ) -> PlannedIndex | None:
        """Return the index of a release; None if the image for the other platform is missing.

        ``record`` is of this image, and ``manifest`` is its manifest if the registry has it.

        CheckFailedError: this image is not published yet, and the other one has other versions. Or
            the index exists with other images.
        """
        partner = other_image(image)
        if partner is None:
            return None
        planned = planned_tags(partner, record.release)
        other = existing_record(self.registry, planned.immutable)
        other_manifest = self.registry.manifest(planned.immutable) if other else None
        if other is None or other_manifest is None or other_manifest.digest != other.digest:
            return None
        first = record if record.platform == AMD64 else other
        tag = index_tag(first.tag)
        if differing := differing_versions({**record.pins, **record.packages}, other):
            text = (
                f"{record.tag} and {other.tag} would be one release, but have different versions: "
                f"{', '.join(differing)}. Push images of one checkout, or give another --release"
            )
            if manifest is None:
                raise CheckFailedError(f"{text}.")
            return PlannedIndex(tag, refused=text)
        moving = record.moving if first is record else planned.moving
        if record.retired:
            return PlannedIndex(tag, refused=f"{record.tag} is retired")
        if refused := self._find_objection(other, other_manifest, partner, moving):
            return PlannedIndex(tag, refused=refused)
        digest = self.registry.head(tag)
        content = None
        if manifest:
            manifests = {record.platform: manifest, other.platform: other_manifest}
            content = index_content(manifests)
        index = PlannedIndex(tag, content)
        if digest and content and digest != index.digest:
            raise CheckFailedError(
                f"{self.registry.name}:{tag} lists other images than {record.tag} and {other.tag}. "
                "An index is never changed. Publish both images under the next release (--release)."
            )
        digests = {tag: self.registry.head(tag) for tag in moving}
        later = later_images(self.registry, first, digests, digest or "")
        return replace(
            index,
            present=bool(content and digest) and self._is_signed(index.digest),
            digests={tag: digest for tag, digest in digests.items() if tag not in later},
            kept=tuple(f"{tag} stays at {other}" for tag, other in later.items()),
        )

    def _find_objection(
        self, other: Record, manifest: Manifest, partner: Image, moving: Collection[str]
    ) -> str:
        """Return why an index of this push cannot list the other image; empty if it can.

        ``moving`` are the tags that will point to the index.
        """
        if (other.image, other.platform) != (partner.name, partner.platform):
            return f"the record of {other.tag} is of another image"
        if other.retired:
            return f"{other.tag} is retired"
        if self.signer:
            own = moving if other.platform == AMD64 else ()
            try:
                self._require_trusted(other, manifest, partner, own)
            except CheckFailedError as error:
                return f"{other.tag} has no trusted signature; push it with the signer: {error}"
        elif self.registry.head(f"{other.digest.replace(':', '-')}.sig"):
            return f"{other.tag} is signed, so this push must sign, too: --sign-key, --sign-keyless"
        return ""

    def _require_trusted(
        self, other: Record, manifest: Manifest, partner: Image, moving: Collection[str]
    ) -> None:
        """Require a trusted provenance that agrees with a record and allows these moving tags."""
        exact = f"{self.registry.name}@{manifest.digest}"
        for signed in read_trusted_provenances(self.trust, exact):
            is_same = not [*record_differences(other, signed, partner.matrix)]
            if is_same and {*moving} <= {*(signed.moving or ())}:
                break
        else:
            raise CheckFailedError("its signed provenance differs from its record.")
        if self.trust and self.trust.read_attestations_if_any(exact, RETIREMENT):
            raise CheckFailedError("it is retired, by its signed retirement.")

    def _is_signed(self, digest: str) -> bool:
        """Return whether the signer of this push signed an index, or there is no signer."""
        if self.signer is None:
            return True
        if not is_attached(self.registry, digest, self.signer) or self.trust is None:
            return False
        try:
            self.trust.require_signature(f"{self.registry.name}@{digest}")
        except CheckFailedError:
            return False
        return True

    def is_published(self, digest: str) -> bool:
        """Return whether a digest is the index of a published release, signed if this push signs.

        A tag that points to another index belongs to nobody.
        """
        manifest = self.registry.manifest(digest)
        if manifest is None or not is_index(manifest):
            return False
        try:
            members = {*read_index(manifest).values()}
        except DamagedError:
            return False
        published = read_published(self.registry)
        recorded = {record.digest for record in published.whole}
        indexes = {published.index(record) for record in published.whole}
        is_trusted = self.trust is None or self._is_signed(digest)
        return digest in indexes and members <= recorded and is_trusted

    def write(self, index: PlannedIndex) -> None:
        """Write and sign an index, and set its immutable tag.

        CheckFailedError: the tag belongs to another index by now.
        """
        if index.present or index.content is None:
            return
        self.registry.put_manifest(index.digest, index.content, INDEX_TYPE)
        if self.signer:
            self.signer.sign(f"{self.registry.name}@{index.digest}", {})
        present = self.registry.head(index.tag)
        if present not in {None, index.digest}:
            raise CheckFailedError(
                f"{self.registry.name}:{index.tag} was set to {present} by someone else during "
                "this push. An index is never changed."
            )
        self.registry.put_manifest(index.tag, index.content, INDEX_TYPE)
