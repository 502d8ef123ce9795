"""Look up what a repository has of an image before it is pushed; nothing is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from imgbuild.errors import CheckFailedError
from imgbuild.matrix.tags import input_tag, planned_tags
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.published import read_published
from imgbuild.publish.record import Record, read_record
from imgbuild.publish.release import next_release, releases_in
from imgbuild.registry.repository import DamagedError, Manifest
from imgbuild.registry.repository_client import RegistryClient


@dataclass(frozen=True)
class ExistingImage:
    """What a repository has of an image: ``manifest`` and ``record`` are of its immutable tag.

    ``input`` is the digest of its input tag, ``moving`` are those of its moving tags. ``kept`` are
    the immutable tags of later images that some moving tags stay at.
    """

    release: str
    tag: str
    manifest: Manifest | None
    record: Record | None
    input: str | None
    moving: Mapping[str, str | None]
    kept: Mapping[str, str]

    def to_move(self, digest: str | None) -> list[str]:
        """Return the moving tags that are to move to the image."""
        return [
            tag
            for tag, found in self.moving.items()
            if (digest is None or found != digest) and tag not in self.kept
        ]


def look_up(
    registry: RegistryClient,
    tags: Sequence[str],
    image: PushCandidate,
    release: str | None,
    today: date,
) -> ExistingImage:
    """Return what a repository with these ``tags`` has of an image.

    ``release`` is that of ``--release``, if any.

    Raises:
        CheckFailedError: the immutable tag belongs to another image.

    """
    release = release or _release(registry, tags, image, today)
    tag = planned_tags(image.image, release).immutable
    manifest, record = registry.manifest(tag), existing_record(registry, tag)
    owner = manifest or (registry.manifest(record.digest) if record else None)
    if owner and not owner.is_image(image.image_id):
        raise CheckFailedError(
            f"{registry.name}:{tag} is there already, for another image: {owner.digest} (image "
            f"{owner.config_digest}), and here it is image {image.image_id}. An immutable tag is "
            "never moved: publish under the next release (--release), or leave the one that is "
            "there."
        )
    moving = {one: registry.head(one) for one in planned_tags(image.image).moving}
    kept = _kept(registry, record, moving) if record else {}
    found = registry.head(input_tag(image.item.digest.total))
    return ExistingImage(release, tag, manifest, record, found, moving, kept)


def existing_record(registry: RegistryClient, tag: str) -> Record | None:
    """Return the record of an immutable tag; None for a damaged one, to be written again."""
    try:
        return read_record(registry, tag)
    except DamagedError:
        return None


def _release(
    registry: RegistryClient, tags: Sequence[str], image: PushCandidate, today: date
) -> str:
    """Return the release under which this very image is there, or the day's next."""
    for release in reversed(releases_in(tags, image.image)):
        manifest = registry.manifest(planned_tags(image.image, release).immutable)
        if manifest and manifest.is_image(image.image_id):
            return release
    return next_release(today, tags, image.image)


def _kept(
    registry: RegistryClient, record: Record, moving: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the moving tags of a published image that later images have.

    All records are read, only if a tag is neither missing nor the image's own.
    """
    if not {*moving.values()} - {None, record.digest}:
        return {}
    later = {
        one.digest: one.tag
        for one in read_published(registry).whole
        if one.image == record.image and one.age > record.age
    }
    return {tag: later[digest] for tag, digest in moving.items() if digest in later}
