"""Look up an image in a repository before the push, and choose its release.

A release is a day in UTC and the number of the release on that day, for example ``20261120.1``.
"""

from collections.abc import Collection, Mapping
from datetime import date

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.matrix.images import Image, for_other_architecture, planned_tags
from imgbuild.matrix.tags import RELEASE, index_tag, push_prefix, push_tag, record_tag
from imgbuild.net.repository import DamagedError
from imgbuild.net.repository_client import RegistryClient
from imgbuild.publish.extended_candidate import Candidate, ExtendedCandidate
from imgbuild.publish.record import Record, read_published, read_record, release_order
from imgbuild.publish.release_index import differing_versions

#: Maximum releases per day: tags have room for four digits (matrix/tags.py).
MOST_A_DAY = 9999


def tag_is_taken(name: str, release: str, there: str, here: str) -> CheckFailedError:
    """Return the error for an immutable tag of another image; it suggests the next release."""
    return CheckFailedError(
        f"{name} already exists for another image: the registry has {there}, this machine has "
        f"{here}. An immutable tag is never moved. Publish under the next release (--release "
        f"{_following(release)}), or keep the published image."
    )


def tag_is_announced(name: str, release: str, push: str) -> CheckFailedError:
    """Return the error for an immutable tag that another push announced with the tag ``push``."""
    return CheckFailedError(
        f"{name}: a push of another image has reserved this tag with {push}, and may still run. "
        "Nothing was tagged. Run again: without --release, the image gets the next release; "
        f"otherwise give --release {_following(release)}."
    )


def _following(release: str) -> str:
    day, _, number = release.partition(".")
    return f"{day}.{int(number) + 1}"


def other_pushes(tags: Collection[str], immutable: str, own: str) -> list[str]:
    """Return the tags with which other pushes announce this immutable tag; ``own`` is skipped."""
    prefix = push_prefix(immutable)
    return [tag for tag in tags if tag.startswith(prefix) and tag != own]


def existing_record(registry: RegistryClient, tag: str) -> Record | None:
    """Return the record of an immutable tag; None if it is missing or damaged."""
    try:
        return read_record(registry, tag)
    except DamagedError:
        return None


def check_release(release: str | None) -> None:
    """Raise InputError unless the release has the form ``YYYYMMDD.N``."""
    try:
        if release is not None:
            date.fromisoformat(release[:8] if RELEASE.fullmatch(release) else "")
    except ValueError:
        raise InputError(
            f"--release {release!r} is not a release. Give YYYYMMDD.N, a day in UTC and a number "
            f"from 1 to {MOST_A_DAY} without leading zeros, for example 20261120.1."
        ) from None


def next_release(today: date, releases: Collection[str]) -> str:
    """Return the first unused release of a day; InputError if all are used."""
    for number in range(1, MOST_A_DAY + 1):
        release = f"{today:%Y%m%d}.{number}"
        if release not in releases:
            return release
    raise InputError(f"All {MOST_A_DAY} releases of {today} are used. Push again tomorrow.")


def releases_in(tags: Collection[str], image: Candidate) -> list[str]:
    """Return the releases of an image whose immutable tags are in ``tags``, latest first."""
    releases = []
    for tag in tags:
        match = RELEASE.search(tag)
        if match and image.tags(match[0]).immutable == tag:
            releases.append(match[0])
    return sorted(releases, key=release_order, reverse=True)


def choose_release(
    registry: RegistryClient,
    tags: Collection[str],
    image: Candidate,
    today: date,
    machine: str,
) -> str:
    """Return the release that already has exactly this image, or the next release of the day.

    ``tags`` are all tags in the repository. A release that another push announced is skipped. If
    the image for the other platform has a later release with the same versions, it is returned, so
    that the push completes that release.

    CheckFailedError: there is a release of a later day, so a new release would not be the latest.
    """
    releases = releases_in(tags, image)
    # Anybody who may write to the repository can add a release of a later day.
    others = [
        release for release in _releases_of_other(tags, image) if release[:8] <= f"{today:%Y%m%d}"
    ]
    is_behind = others and max([*releases, *others], key=release_order) not in releases
    if is_behind and _has_same_versions(registry, image, others[0]):
        immutable = image.tags(others[0]).immutable
        if not other_pushes(tags, immutable, push_tag(immutable, image.stored.id, machine)):
            return others[0]
    for release in releases:
        manifest = registry.manifest(image.tags(release).immutable)
        if manifest and manifest.is_image(image.stored.id):
            return release
    if releases and releases[0][:8] > f"{today:%Y%m%d}":
        raise CheckFailedError(
            f"{registry.name} already has release {releases[0]} of {image.name}, but today is "
            f"{today}. Set the clock. If that release was chosen, choose a later one: --release."
        )
    releases += others
    while True:
        release = next_release(today, releases)
        immutable = image.tags(release).immutable
        if not other_pushes(tags, immutable, push_tag(immutable, image.stored.id, machine)):
            return release
        releases.append(release)


def other_image(image: Candidate) -> Image | None:
    """Return the image for the other platform; extended images have none."""
    if isinstance(image, ExtendedCandidate):
        return None
    return for_other_architecture(image.image)


def _releases_of_other(tags: Collection[str], image: Candidate) -> list[str]:
    """Return the published releases of the image for the other platform, latest first."""
    other, present = other_image(image), {*tags}
    releases = []
    for tag in tags if other else ():
        match = RELEASE.search(tag)
        immutable = planned_tags(other, match[0]).immutable if other and match else ""
        if match and tag == immutable and record_tag(tag) in present:
            releases.append(match[0])
    return sorted(releases, key=release_order, reverse=True)


def _has_same_versions(registry: RegistryClient, image: Candidate, release: str) -> bool:
    """Return whether the image for the other platform has the same versions in this release."""
    other = other_image(image)
    record = existing_record(registry, planned_tags(other, release).immutable) if other else None
    return record is not None and not differing_versions({**image.pins, **image.packages}, record)


def later_images(
    registry: RegistryClient,
    record: Record,
    moving: Mapping[str, str | None],
    index: str = "",
) -> dict[str, str]:
    """Return the moving tags that point to later images, with the immutable tags of these images.

    ``moving`` has the digests of the moving tags. ``index`` is the digest of the release's index,
    if it has one. The records are only read if a moving tag points to another image.
    """
    if not {*moving.values()} - {None, record.digest, index}:
        return {}
    published = read_published(registry)
    later: dict[str, str] = {}
    for other in published.whole:
        if other.image == record.image and other.age > record.age:
            later[other.digest] = other.tag
            later[published.index(other)] = index_tag(other.tag)
    return {tag: later[digest] for tag, digest in moving.items() if digest in later}
