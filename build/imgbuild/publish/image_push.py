"""Publish one image: read its state in the registry, then do the remaining steps.

:mod:`imgbuild.publish.push` explains their order.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from imgbuild.core.errors import CheckFailedError
from imgbuild.core.files import parse_json
from imgbuild.engine.types import AMD64
from imgbuild.matrix.tags import input_tag, push_tag
from imgbuild.net.repository import Manifest
from imgbuild.net.repository_client import RegistryClient
from imgbuild.net.signing import Signer, Trust
from imgbuild.publish.attachments import attach, is_attached
from imgbuild.publish.existing import (
    choose_release,
    existing_record,
    later_images,
    other_image,
    other_pushes,
    tag_is_announced,
    tag_is_taken,
)
from imgbuild.publish.extended_candidate import Candidate, ExtendedCandidate
from imgbuild.publish.index_push import IndexWriter
from imgbuild.publish.record import Record, put_record
from imgbuild.publish.release_index import INDEX_TYPE, PlannedIndex
from imgbuild.publish.sbom import system_packages
from imgbuild.publish.signed_image import read_trusted_provenances

_DONE = {
    "push": "pushed",
    "attach": "attached",
    "sign": "signed",
    "record": "recorded",
    "index": "indexed",
}


@dataclass(frozen=True)
class PushedImage:
    """One image of a push: its record, its steps, and its previous state in the registry.

    - ``work``: a selection of push, sign or attach, record, and index
    - ``moves``: the moving tags that will point to the image, or to the index with it
    - ``kept``: sentences about moving tags that stay at a later image
    - ``manifest`` and ``recorded``: the present manifest and record of the immutable tag
    - ``digests``: the present digests of the input tag and the moving tags, without kept tags and
      the tags of the index
    - ``index``: the index of the release, if this image completes it
    """

    record: Record
    work: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    manifest: Manifest | None = None
    recorded: Record | None = None
    digests: Mapping[str, str | None] = field(default_factory=dict)
    index: PlannedIndex | None = None

    @property
    def steps(self) -> tuple[str, ...]:
        """The remaining steps, in order."""
        moves = [f"move {tag}" for tag in self.moves]
        return (*self.work, *moves)

    @property
    def done(self) -> tuple[str, ...]:
        """The same steps in the past tense."""
        work = [_DONE[step] for step in self.work]
        moves = [f"moved {tag}" for tag in self.moves]
        return (*work, *moves)


@dataclass(frozen=True)
class Push:
    """One push into one repository.

    ``tags`` are all tags in the repository at the start. ``trust`` verifies existing signatures of
    the signer; without it, any signature counts. ``machine`` is a short digest of this machine and
    state folder. Their locks prevent parallel pushes of the same image.
    """

    registry: RegistryClient
    tags: tuple[str, ...]
    release: str | None
    signer: Signer | None = None
    trust: Trust | None = None
    machine: str = ""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def indexes(self) -> IndexWriter:
        return IndexWriter(self.registry, self.signer, self.trust)

    @property
    def action(self) -> str:
        """The step that adds the documents to an image."""
        return "sign" if self.signer else "attach"

    def push(
        self,
        image: Candidate,
        upload: Callable[[str], str],
        documents: Callable[[Record, Manifest], Mapping[str, bytes]],
    ) -> PushedImage:
        """Push one image.

        ``upload`` sends its content under a tag, and returns the digest that the engine sent.
        ``documents`` creates its SBOM and provenance.

        CheckFailedError: the immutable tag belongs to another image, or somebody moved a tag during
            the push.
        """
        planned = self.plan(image, put_back=True)
        if not planned.steps:
            return planned
        manifest = planned.manifest
        if manifest is None or not self._is_signed(planned):
            manifest = self._send(image, planned, upload)
        record = self._record(image, planned.record.release, manifest, planned.recorded)
        if self.action in planned.work:
            predicates = documents(record, manifest)
            attach(self.registry, manifest, predicates, self.signer)
            system = system_packages(parse_json(predicates["cyclonedx"]))
            record = replace(record, system=system)
        if record != planned.recorded:
            self._require_own(record, None, planned.recorded)
            put_record(self.registry, record, manifest)
        own_input = input_tag(record.input_digest)
        index = None
        for tag, digest in planned.digests.items():
            if tag != own_input:
                # Of two pushes at once, one sees the other's record, because its own is written.
                index = index or self._plan_index(image, record, manifest)
            if digest == manifest.digest or (index and tag in index.digests):
                continue
            if tag != own_input:
                self._require_unmoved(record, {tag: {digest, record.digest}})
            self._point(tag, manifest)
        self._require_own(record)
        index = index or self._plan_index(image, record, manifest)
        expected = {tag: {record.digest} for tag in (record.tag, *planned.digests)}
        if index:
            self._put_index(index, record)
            expected |= {tag: {index.digest} for tag in (index.tag, *index.digests)}
        self._require_unmoved(record, expected)
        return self._completed(planned, record, index)

    def _completed(
        self, planned: PushedImage, record: Record, index: PlannedIndex | None
    ) -> PushedImage:
        """Return what a push has done, which also depends on other pushes of the release.

        CheckFailedError: the planned index was not made, because the other image has changed.
        """
        pushed = replace(planned, record=record, index=index)
        if planned.index and index is None:
            raise CheckFailedError(
                f"{record.tag} is complete, but the image for the other platform was changed "
                f"during this push, so {planned.index.tag} was not made. Run again."
            )
        if index is None:
            return pushed
        work = [step for step in planned.work if step != "index"]
        moves = [tag for tag in planned.moves if tag not in index.digests]
        own = [text for text in planned.kept if text.partition(" ")[0] not in index.digests]
        return replace(
            pushed,
            work=(*work, *(() if index.present else ("index",))),
            moves=(*moves, *index.moves),
            kept=tuple(dict.fromkeys((*own, *index.kept))),
        )

    def plan(self, image: Candidate, *, put_back: bool = False) -> PushedImage:
        """Return the steps for an image. Only read from the registry, except with ``put_back``.

        CheckFailedError: the immutable tag belongs to another image, or differs from its record.
            With ``put_back``, the tag is moved back to the recorded image if that is signed.
        """
        release = self.release
        if not release:
            today = self.now().date()
            release = choose_release(self.registry, self.tags, image, today, self.machine)
        tags = image.tags(release)
        own_input = input_tag(image.input_digest)
        manifest, recorded = self._present(image, tags.immutable, release, put_back=put_back)
        record = self._record(image, release, manifest, recorded)
        index = self.indexes.plan(image, record, manifest)
        refused = index.refused if index else ""
        index = None if refused else index
        moving: Mapping[str, str | None] = {}
        kept: Mapping[str, str] = {}
        if index is None or record.platform != AMD64:
            moving, kept = self._own_moving(image, tags.moving, recorded, refused)
        input_digest = self.registry.head(own_input)

        work = []
        if manifest is None:
            work.append("push")
        if manifest is None or not self._is_attached(manifest, record):
            work.append(self.action)
        if manifest is None or record != recorded or input_digest != manifest.digest:
            work.append("record")
        index_moves: tuple[str, ...] = ()
        if index:
            work += [] if index.present else ["index"]
            index_moves = index.moves
        own_digest = manifest.digest if manifest else ""
        moves = [tag for tag, digest in moving.items() if digest != own_digest]
        kept_texts = [f"{tag} stays at {other}" for tag, other in kept.items()]
        if refused:
            kept_texts.append(f"no index for both platforms: {refused}")
        return PushedImage(
            record,
            tuple(work),
            moves=(*moves, *index_moves),
            kept=(*kept_texts, *(index.kept if index else ())),
            manifest=manifest,
            recorded=recorded,
            digests={own_input: input_digest, **moving},
            index=index,
        )

    def _present(
        self, image: Candidate, tag: str, release: str, *, put_back: bool
    ) -> tuple[Manifest | None, Record | None]:
        """Return the manifest and the record of an immutable tag; errors as in `plan`."""
        manifest = self.registry.manifest(tag)
        recorded = existing_record(self.registry, tag)
        if manifest and recorded and recorded.digest != manifest.digest:
            if put_back:
                raise self._put_back(tag, manifest, recorded)
            raise CheckFailedError(self._moved_text(tag, manifest, recorded))
        owner = manifest
        if owner is None and recorded:
            owner = self.registry.manifest(recorded.digest)
        if owner and not owner.is_image(image.stored.id):
            here = f"image {image.stored.id}"
            there = f"{owner.digest} (image {owner.config_digest})"
            raise tag_is_taken(f"{self.registry.name}:{tag}", release, there, here)
        return manifest, recorded

    def _own_moving(
        self, image: Candidate, tags: Collection[str], recorded: Record | None, refused: str
    ) -> tuple[dict[str, str | None], dict[str, str]]:
        """Return the digests of the moving tags that may point to the image, and the other tags.

        Each of the others has the reason. A tag of an index stays until this release has an index,
        because otherwise the other platform would have no image at this tag. ``refused`` is the
        reason why the release gets no index, if both images are published.
        """
        other = other_image(image)
        moving = {tag: self.registry.head(tag) for tag in tags}
        kept = later_images(self.registry, recorded, moving) if recorded else {}
        own = recorded.digest if recorded else ""
        others = {*moving.values()} - {None, own} if other else set()
        indexes = {digest for digest in others if digest and self.indexes.is_published(digest)}
        for tag, digest in moving.items():
            if other and tag not in kept and digest in indexes:
                kept[tag] = "an index, because this release has none"
                if not refused:
                    kept[tag] = (
                        f"an earlier release for all platforms until the image for "
                        f"{other.platform} of this release is published"
                    )
        return {tag: digest for tag, digest in moving.items() if tag not in kept}, kept

    def _plan_index(
        self, image: Candidate, record: Record, manifest: Manifest | None
    ) -> PlannedIndex | None:
        """Return the index that this push makes; None if it makes none. See `IndexWriter.plan`."""
        index = self.indexes.plan(image, record, manifest)
        return index if index and not index.refused else None

    def _put_index(self, index: PlannedIndex, record: Record) -> None:
        """Write and sign an index, and then set its tags.

        CheckFailedError: somebody moved one of the tags.
        """
        self.indexes.write(index)
        for tag in index.moves:
            allowed = {index.digests[tag], record.digest, index.digest}
            self._require_unmoved(record, {tag: allowed})
            self.registry.put_manifest(tag, index.content or b"", INDEX_TYPE)

    def _record(
        self, image: Candidate, release: str, manifest: Manifest | None, recorded: Record | None
    ) -> Record:
        """Return the new record of an image; it keeps the time of ``recorded``."""
        tags = image.tags(release)
        record = Record(
            image=image.name,
            digest=manifest.digest if manifest else "",
            image_id=manifest.config_digest if manifest else image.stored.id,
            size=sum(manifest.sizes()) if manifest else 0,
            release=release,
            tag=tags.immutable,
            moving=tags.moving,
            input_digest=image.input_digest,
            variant=image.variant,
            stack=image.stack,
            pins=image.pins,
            report=image.report,
            substitutes=image.allowed,
            published=f"{self.now():%Y-%m-%dT%H:%M:%SZ}",
            packages=image.packages,
            snapshots=image.snapshots,
            build_seconds=image.work_seconds,
            platform=image.stored.platform,
        )
        if isinstance(image, ExtendedCandidate):
            record = replace(record, base=image.base, lock=image.lock, not_run=image.not_run)
        if recorded is None or recorded.digest != record.digest:
            return record
        return replace(
            record,
            published=recorded.published,
            system=recorded.system,
            build_seconds=recorded.build_seconds,
            retired=recorded.retired,
            retired_reason=recorded.retired_reason,
        )

    def _is_attached(self, manifest: Manifest, record: Record) -> bool:
        """Return whether an image has all documents, signed if there is a signer.

        With ``trust``, the provenance must name the tags of this push, because `verify` accepts no
        other tags. The provenance of another release, or with other tags, is not enough.
        """
        if not is_attached(self.registry, manifest.digest, self.signer):
            return False
        if self.signer is None or self.trust is None:
            return True
        try:
            self._require_published(manifest, record.tag, record.moving)
        except CheckFailedError:
            return False
        return True

    def _is_signed(self, planned: PushedImage) -> bool:
        """Return whether the signer of this push signed the present image, or there is none."""
        if self.signer is None:
            return True
        return bool(self.trust) and self.action not in planned.work

    def _send(
        self, image: Candidate, planned: PushedImage, upload: Callable[[str], str]
    ) -> Manifest:
        """Send the image and set its immutable tag; return the manifest that the engine sent.

        CheckFailedError: another image has the tag, or another push announced it.
        """
        release, tag = planned.record.release, planned.record.tag
        announced = push_tag(tag, image.stored.id, self.machine)
        digest = upload(announced)
        manifest = self.registry.manifest(digest)
        if manifest is None:
            raise CheckFailedError(
                f"{self.registry.name} has no {digest} although the engine pushed {image.name}. "
                "Does the engine use another address for this registry? See the engine's log."
            )
        name = f"{self.registry.name}:{tag}"
        tagged = self.registry.head(tag)
        pushes = other_pushes(self.registry.tags(), tag, announced)
        others = [other for other in pushes if self.registry.head(other) != digest]
        owner = tagged or (planned.recorded.digest if planned.recorded else digest)
        if owner != digest:
            raise tag_is_taken(name, release, owner, digest)
        if tagged is None:
            if others:
                raise tag_is_announced(name, release, others[0])
            self._point(tag, manifest)
        return manifest

    def _require_own(self, record: Record, *allowed: Record | None) -> None:
        """Raise CheckFailedError if the registry's record belongs to another image."""
        present = existing_record(self.registry, record.tag)
        if present in allowed or (present and present.digest == record.digest):
            return
        raise self._put_back(record.tag, self.registry.manifest(record.tag), present)

    def _put_back(
        self, tag: str, manifest: Manifest | None, record: Record | None
    ) -> CheckFailedError:
        """Return the error for a tag that contradicts its record, and repair the tag if possible.

        The tag is moved back to the recorded image if a trusted signer signed that image with this
        tag. Nothing else is changed.
        """
        text = self._moved_text(tag, manifest, record)
        recorded = record and self.registry.manifest(record.digest)
        if not record or not recorded or (manifest and manifest.digest == record.digest):
            return CheckFailedError(text)
        try:
            self._require_published(recorded, tag)
        except CheckFailedError as error:
            return CheckFailedError(f"{text} The recorded image is not verified: {error}")
        self._point(tag, recorded)
        return CheckFailedError(
            f"{text} The signature and provenance of the recorded image are valid, so the tag was "
            "moved back to it. Run again; another image gets the next release."
        )

    def _require_published(
        self, manifest: Manifest, tag: str, moving: Collection[str] = ()
    ) -> None:
        """Require that a trusted signer signed the image with this immutable tag and moving tags.

        CheckFailedError: nobody did, or there is no trusted signer.
        """
        exact = f"{self.registry.name}@{manifest.digest}"
        for signed in read_trusted_provenances(self.trust, exact):
            if signed.tag == tag and {*moving} <= {*(signed.moving or ())}:
                return
        raise CheckFailedError(f"{exact}: its provenance does not name this tag.")

    def _moved_text(self, tag: str, manifest: Manifest | None, record: Record | None) -> str:
        there = manifest.digest if manifest else "missing"
        recorded = record.digest if record else "nothing"
        return (
            f"{self.registry.name}:{tag} is {there}, but its record names {recorded}: somebody "
            "moved one of them, or two pushes ran at the same time."
        )

    def _require_unmoved(
        self, record: Record, allowed: Mapping[str, Collection[str | None]]
    ) -> None:
        """Raise CheckFailedError if somebody moved a tag to a digest that is not allowed for it."""
        faults = []
        for tag, digests in allowed.items():
            digest = self.registry.head(tag)
            if digest not in digests:
                faults.append(
                    f"{self.registry.name}:{tag} was moved by someone else during this push, to "
                    f"{digest or 'nothing'}. It was not changed, and {record.tag} is complete. "
                    "Run again to move the tag."
                )
        if faults:
            raise CheckFailedError("\n".join(faults))

    def _point(self, tag: str, manifest: Manifest) -> None:
        self.registry.put_manifest(tag, manifest.content, manifest.media_type)
