"""Publishing one image: content under its immutable tag, its record, then the tags that move."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from imgbuild.errors import CheckFailedError
from imgbuild.matrix.tags import immutable_tag, moving_tags, record_tag
from imgbuild.publishing.approved import Approved
from imgbuild.publishing.artifact import DamagedError
from imgbuild.publishing.content import found_content, of_image, sent_content, taken
from imgbuild.publishing.history import History
from imgbuild.publishing.index import Index
from imgbuild.publishing.ladder import lost_text
from imgbuild.publishing.record import Record, put_record, read_record
from imgbuild.publishing.release import next_release, releases_in
from imgbuild.registry.client import RegistryClient
from imgbuild.registry.manifest import Manifest


@dataclass(frozen=True)
class Published:
    """What became of one image: its record, and what had to be done for it.

    ``done`` are words such as ``pushed`` or ``moved 2.2-gpu``, in order; nothing had to be done if
    there are none. ``left`` are moving tags that a newer release keeps.
    """

    record: Record
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Publisher:
    """A repository, what its index says, and how content gets there.

    ``send`` pushes an image (name, image id, reference); ``check`` asks the running image what it
    is before (image, release). ``release`` is one that was asked for: else an image keeps the one
    that it has, or gets the next of the day. ``roll_back`` moves tags back from a newer release.
    """

    registry: RegistryClient
    index: Index
    tags: Callable[[], tuple[str, ...]]
    now: Callable[[], datetime]
    send: Callable[[str, str, str], None]
    check: Callable[[Approved, str], None]
    release: str | None = None
    roll_back: bool = False

    @property
    def history(self) -> History:
        """What was published before."""
        return History(self.index, self.roll_back)

    def publish(self, image: Approved) -> Published:
        """Publish an image, doing only what is not done yet; what another run began is completed.

        Raises:
            CheckFailedError: the immutable tag is another image's; a moving tag was moved by
                someone else meanwhile; the registry refuses.
            MachineError: the registry or the engine cannot be reached, or keeps failing.

        """
        known = self.history.known(image)
        if known and self.release in {None, known.release} and self._is_complete(image, known):
            return Published(known)
        release = self.release or (known.release if known else self._release(image))
        tag = immutable_tag(image.image, release)
        before = {moving: self.registry.head(moving) for moving in moving_tags(image.image)}
        there = self._recorded(tag)
        manifest, done = self._content(image, release, tag, there)
        if "pushed" in done:  # which may have taken minutes: others may have been here
            there = self._unless_lost(tag, manifest)
        mine = image.record(release, tag, manifest, self._stamp())
        record, recorded = self._record(mine, manifest, there)
        moved, left = self._moved(record, manifest, before)
        return Published(record, (*done, *recorded, *moved), left)

    def _is_complete(self, image: Approved, known: Record) -> bool:
        """Return whether nothing is to be done: HEAD requests alone, nothing is read."""
        if (known.suites, known.substitutes) != (image.suites, image.substitutes):
            return False
        if self.history.rolls_back(known):
            return False
        head = self.registry.head
        if not all(self._is_placed(tag, head(tag), known) for tag in moving_tags(image.image)):
            return False
        return head(known.tag) == known.digest and head(record_tag(known.tag)) is not None

    def _is_placed(self, tag: str, digest: str | None, record: Record) -> bool:
        return digest == record.digest or self.history.newer(tag, digest, record) is not None

    def _release(self, image: Approved) -> str:
        """Return the release of a push that was cut short before its record, or the day's next."""
        tags, recorded = self.tags(), {record.tag for record in self.index.records}
        for release in releases_in(tags, image.image):
            tag = immutable_tag(image.image, release)
            manifest = None if tag in recorded else self.registry.manifest(tag)
            if manifest and of_image(manifest, image.image_id):
                return release
        return next_release(self.now().date(), tags, image.image)

    def _recorded(self, tag: str) -> Record | None:
        """Return what the registry has as a record; one that is damaged is written anew."""
        try:
            return read_record(self.registry, tag)
        except DamagedError:
            return None

    def _content(
        self, image: Approved, release: str, tag: str, there: Record | None
    ) -> tuple[Manifest, tuple[str, ...]]:
        """Return the image's manifest in the registry, and what had to be done for that."""
        recorded = self.registry.manifest(there.digest) if there else None
        if recorded and not of_image(recorded, image.image_id):
            raise CheckFailedError(taken(self.registry, tag, recorded, image.image_id))
        if recorded:  # the record decides, wherever the tag is
            return recorded, self._put_back(tag, recorded)
        found = found_content(self.registry, tag, image.image_id)
        if found:
            return found, ()
        self.check(image, release)
        sent = sent_content(self.registry, tag, image.name, image.image_id, self.send)
        return sent, ("pushed",)

    def _put_back(self, tag: str, manifest: Manifest) -> tuple[str, ...]:
        if self.registry.head(tag) == manifest.digest:
            return ()
        self.registry.put_manifest(tag, manifest.content, manifest.media_type)
        return (f"put back {tag}",)

    def _record(
        self, mine: Record, manifest: Manifest, there: Record | None
    ) -> tuple[Record, tuple[str, ...]]:
        """Return the image's record in the registry, and what had to be done for that.

        Of two images pushed under one tag at the same time that one is published whose record is
        there in the end; the other's push gives the tag back.
        """
        if there and there.digest == mine.digest and not self.history.rolls_back(there):
            mine = replace(mine, published=there.published)
        if there == mine:
            return mine, ()
        put_record(self.registry, mine)
        self._unless_lost(mine.tag, manifest)
        return mine, ("recorded", *self._put_back(mine.tag, manifest))

    def _unless_lost(
        self, tag: str, manifest: Manifest, moving: Iterable[str] = ()
    ) -> Record | None:
        """Return the record that is there now.

        Raises:
            CheckFailedError: it is another image's, which gets its tag back, and those of the
                ``moving`` ones that this image has.

        """
        now = self._recorded(tag)
        if now is None or now.digest == manifest.digest:
            return now
        winner = self.registry.manifest(now.digest)
        self._put_back(tag, winner or manifest)
        for one in moving:
            if winner and self.registry.head(one) == manifest.digest:
                self._put_back(one, winner)
        raise CheckFailedError(lost_text(self.registry, tag, now.digest, manifest.digest))

    def _moved(
        self, record: Record, manifest: Manifest, before: Mapping[str, str | None]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return as `_move`, if the record is still this image's when the tags were moved."""
        try:
            moved, left = self._move(record, manifest, before)
        except CheckFailedError:  # some may have been moved
            self._unless_lost(record.tag, manifest, before)
            raise
        if moved:
            self._unless_lost(record.tag, manifest, before)
        return moved, left

    def _move(
        self, record: Record, manifest: Manifest, before: Mapping[str, str | None]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Move the moving tags; return what was moved, and what a newer release keeps."""
        moved, left = [], []
        for tag, old in before.items():
            now = self.registry.head(tag)
            if now == record.digest:
                continue
            if now != old:
                raise CheckFailedError(self._moved_meanwhile(tag, old, now, record))
            newer = self.history.newer(tag, now, record)
            if newer:
                left.append(f"{tag} stays at {newer.tag}")
                continue
            self.registry.put_manifest(tag, manifest.content, manifest.media_type)
            moved.append(f"moved {tag}")
        return tuple(moved), tuple(left)

    def _moved_meanwhile(self, tag: str, old: str | None, now: str | None, record: Record) -> str:
        return (
            f"{self.registry.name}:{tag} was moved by someone else while this push ran: from "
            f"{old or 'nothing'} to {now or 'nothing'}. It was left so; {record.tag} itself is "
            f"complete. Run again to move it to {record.digest}."
        )

    def _stamp(self) -> str:
        return f"{self.now():%Y-%m-%dT%H:%M:%SZ}"
