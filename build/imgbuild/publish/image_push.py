"""Publish one image: what is there of it, what is to do, and in which order.

:mod:`imgbuild.publish.push` says the order and why.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from imgbuild.errors import CheckFailedError
from imgbuild.files import parse_json
from imgbuild.matrix.tags import input_tag, push_tag
from imgbuild.publish.attachments import Attachments
from imgbuild.publish.existing import (
    ExistingImage,
    existing_record,
    look_up,
    other_pushes,
    tag_is_announced,
    tag_is_taken,
)
from imgbuild.publish.extended_candidate import Candidate, ExtendedCandidate
from imgbuild.publish.record import Record, put_record, suite_record
from imgbuild.publish.sbom import system_packages
from imgbuild.publish.signed_image import read_provenances
from imgbuild.registry.repository import Manifest
from imgbuild.registry.repository_client import RegistryClient
from imgbuild.registry.signing import Trust

_DONE = {"push": "pushed", "attach": "attached", "sign": "signed", "record": "recorded"}


@dataclass(frozen=True)
class PushedImage:
    """The record of an image, and what was or is to be done for it; nothing if all was there.

    ``work`` is some of push, sign or attach, and record; ``moves`` are the moving tags that get the
    image. ``kept`` says which stay at a later image.
    """

    record: Record
    work: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """The remaining steps, in this order."""
        return (*self.work, *(f"move {tag}" for tag in self.moves))

    @property
    def done(self) -> tuple[str, ...]:
        """The same steps when they are done."""
        return (*(_DONE[step] for step in self.work), *(f"moved {tag}" for tag in self.moves))


@dataclass(frozen=True)
class Push:
    """One push into one repository. ``tags`` are all that the repository has at its start.

    ``trust`` is whose signature counts as the signer's; without it, anybody's does. ``machine`` is
    a short name of this machine and state folder, whose pushes of one image never run at once.
    """

    registry: RegistryClient
    tags: tuple[str, ...]
    release: str | None
    attachments: Attachments
    trust: Trust | None = None
    machine: str = ""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def push(
        self,
        image: Candidate,
        upload: Callable[[str], str],
        documents: Callable[[Record, Manifest], Mapping[str, bytes]],
    ) -> PushedImage:
        """Push one image; ``upload`` sends its content under a tag, ``documents`` are about it.

        ``upload`` returns the digest that the engine sent.

        CheckFailedError: the immutable tag belongs to another image; a tag was moved by someone
            else meanwhile.
        """
        existing = self._look_up(image)
        if existing.is_moved:
            raise self._put_back(existing.tag, existing.manifest, existing.record)
        planned = self._planned(image, existing)
        if not planned.steps:
            return planned
        manifest = existing.manifest
        if manifest is None or not self._is_signed(planned):
            manifest = self._send(image, existing, upload)
        record = self._record(image, existing, manifest)
        if self.attachments.word in planned.work:
            found = documents(record, manifest)
            self.attachments.put(manifest, found)
            record = replace(record, system=system_packages(parse_json(found["cyclonedx"])))
        if record != existing.record:
            self._require_own(record, None, existing.record)
            put_record(self.registry, record, manifest)
        if existing.input != manifest.digest:
            self._point(input_tag(record.input_digest), manifest)
        for tag in existing.to_move(manifest):
            self._require_unmoved(record, {tag: existing.moving[tag]})
            self._point(tag, manifest)
        self._require_own(record)
        tags = (record.tag, input_tag(record.input_digest), *existing.to_move(None))
        self._require_unmoved(record, dict.fromkeys(tags, record.digest))
        return replace(planned, record=record)

    def planned(self, image: Candidate) -> PushedImage:
        """Return what is to do for an image; the registry is only read."""
        existing = self._look_up(image)
        if existing.is_moved:
            raise CheckFailedError(
                self._moved_text(existing.tag, existing.manifest, existing.record)
            )
        return self._planned(image, existing)

    def _look_up(self, image: Candidate) -> ExistingImage:
        today = self.now().date()
        return look_up(self.registry, self.tags, image, self.release, today, self.machine)

    def _planned(self, image: Candidate, existing: ExistingImage) -> PushedImage:
        manifest = existing.manifest
        record = self._record(image, existing, manifest)
        recorded = manifest and record == existing.record and existing.input == manifest.digest
        kept = tuple(f"{tag} stays at {later}" for tag, later in existing.kept.items())
        attached = manifest and self._is_attached(manifest, existing)
        there = {"push": manifest, self.attachments.word: attached, "record": recorded}
        work = tuple(step for step, found in there.items() if not found)
        return PushedImage(record, work, tuple(existing.to_move(manifest)), kept)

    def _record(
        self, image: Candidate, existing: ExistingImage, manifest: Manifest | None
    ) -> Record:
        """Return the record that an image is to have; what is there already keeps its time."""
        record = Record(
            image=image.name,
            digest=manifest.digest if manifest else "",
            image_id=manifest.config_digest if manifest else image.stored.id,
            size=sum(manifest.sizes()) if manifest else 0,
            release=existing.release,
            tag=existing.tag,
            moving=tuple(existing.moving),
            input_digest=image.input_digest,
            variant=image.variant,
            stack=image.stack,
            pins=image.pins,
            suites=tuple(suite_record(*pair) for pair in image.report.items()),
            report=image.report,
            substitutes=image.allowed,
            published=f"{self.now():%Y-%m-%dT%H:%M:%SZ}",
            packages=image.packages,
            snapshots=image.snapshots,
            build_seconds=image.work_seconds,
        )
        if isinstance(image, ExtendedCandidate):
            record = replace(record, base=image.base, lock=image.lock, not_run=image.not_run)
        old = existing.record
        if old is None or old.digest != record.digest:
            return record
        return replace(
            record,
            published=old.published,
            system=old.system,
            build_seconds=old.build_seconds,
            retired=old.retired,
            retired_reason=old.retired_reason,
        )

    def _is_attached(self, manifest: Manifest, existing: ExistingImage) -> bool:
        """Return whether all documents are beside an image, and signed if there is a signer.

        If it is known whose signature counts, the provenance must name the tags of this push, since
        `verify` believes no others: that of another release, or of a family with other tags, does
        not.
        """
        if not self.attachments.are_there(manifest.digest):
            return False
        if self.attachments.signer is None or self.trust is None:
            return True
        try:
            self._require_published(manifest, existing.tag, existing.moving)
        except CheckFailedError:
            return False
        return True

    def _is_signed(self, planned: PushedImage) -> bool:
        """Return whether what is there was signed as we sign, or nobody signs."""
        if self.attachments.signer is None:
            return True
        return bool(self.trust) and self.attachments.word not in planned.work

    def _send(
        self, image: Candidate, existing: ExistingImage, upload: Callable[[str], str]
    ) -> Manifest:
        """Send the image, and give it its immutable tag; return what the engine sent.

        CheckFailedError: another image has the tag, or another push has announced it.
        """
        announced = push_tag(existing.tag, image.stored.id, self.machine)
        digest = upload(announced)
        manifest = self.registry.manifest(digest)
        if manifest is None:
            raise CheckFailedError(
                f"{self.registry.name} has no {digest} although the engine pushed {image.name}: "
                "does the engine know this registry under another address? Look into its log."
            )
        name = f"{self.registry.name}:{existing.tag}"
        at = self.registry.head(existing.tag)
        others = [
            other
            for other in other_pushes(self.registry.tags(), existing.tag, announced)
            if self.registry.head(other) != digest
        ]
        there = at or (existing.record.digest if existing.record else None)
        if there not in {None, digest}:
            raise tag_is_taken(name, existing.release, str(there), digest)
        if at is None and others:
            raise tag_is_announced(name, existing.release, others[0])
        if at is None:
            self._point(existing.tag, manifest)
        return manifest

    def _require_own(self, record: Record, *allowed: Record | None) -> None:
        """Refuse to go on if the record is another image's."""
        found = existing_record(self.registry, record.tag)
        if found in allowed or (found and found.digest == record.digest):
            return
        raise self._put_back(record.tag, self.registry.manifest(record.tag), found)

    def _put_back(
        self, tag: str, manifest: Manifest | None, record: Record | None
    ) -> CheckFailedError:
        """Return the error for a tag without its record, or a record without its tag.

        The tag is put back to the recorded image if that is signed, under this very tag, by whom
        this push trusts. Nothing else is changed.
        """
        text = self._moved_text(tag, manifest, record)
        recorded = record and self.registry.manifest(record.digest)
        if not record or not recorded or (manifest and manifest.digest == record.digest):
            return CheckFailedError(text)
        try:
            self._require_published(recorded, tag)
        except CheckFailedError as error:
            return CheckFailedError(f"{text} The recorded image proves nothing: {error}")
        self._point(tag, recorded)
        return CheckFailedError(
            f"{text} The signature and the provenance of the recorded image are right, so the tag "
            "was put back to it. Run again; another image gets the next release."
        )

    def _require_published(
        self, manifest: Manifest, tag: str, moving: Collection[str] = ()
    ) -> None:
        """Return if an image was signed as what an immutable tag and moving tags stand for.

        CheckFailedError: it was not, or it is not known whose signature counts.
        """
        if self.trust is None:
            raise CheckFailedError("it is not known whose signature counts (--sign-key).")
        exact = f"{self.registry.name}@{manifest.digest}"
        self.trust.require_signature(exact)
        for signed in read_provenances(self.trust.attested(exact, "slsaprovenance1")):
            if signed.tag == tag and {*moving} <= {*(signed.moving or ())}:
                return
        raise CheckFailedError(f"{exact}: its provenance does not name this tag.")

    def _moved_text(self, tag: str, manifest: Manifest | None, record: Record | None) -> str:
        there = manifest.digest if manifest else "not there"
        recorded = record.digest if record else "nothing"
        return (
            f"{self.registry.name}:{tag} is {there}, and its record names {recorded}: somebody "
            "moved one of them, or two pushes ran at once."
        )

    def _require_unmoved(self, record: Record, expected: Mapping[str, str | None]) -> None:
        """Refuse to go on if a tag is neither where it is expected nor at the image."""
        found = {tag: self.registry.head(tag) for tag in expected}
        faults = [
            f"{self.registry.name}:{tag} was moved by someone else while this push ran, to "
            f"{now or 'nothing'}. It stays there; {record.tag} itself is complete. Run again to "
            f"move it to {record.digest}."
            for tag, now in found.items()
            if now not in {expected[tag], record.digest}
        ]
        if faults:
            raise CheckFailedError("\n".join(faults))

    def _point(self, tag: str, manifest: Manifest) -> None:
        self.registry.put_manifest(tag, manifest.content, manifest.media_type)
