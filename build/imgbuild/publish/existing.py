"""Look up what a repository has of an image before it is pushed, and the release that it gets.

A release is a day in UTC and the number of the release on that day, such as ``20261120.1``.
"""

from collections.abc import Collection, Mapping
from datetime import date

from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.matrix.tags import RELEASE, push_prefix, push_tag
from imgbuild.net.repository import DamagedError
from imgbuild.net.repository_client import RegistryClient
from imgbuild.publish.extended_candidate import Candidate
from imgbuild.publish.record import Record, read_published, read_record, release_order

#: So many times a day: the scheme of tags has room for four digits (matrix/tags.py).
MOST_A_DAY = 9999


def tag_is_taken(name: str, release: str, there: str, here: str) -> CheckFailedError:
    """Return the error for an immutable tag that another image has, with the next release."""
    return CheckFailedError(
        f"{name} already exists for another image: it is {there} there, and {here} here. An "
        "immutable tag is never moved: publish under the next release (--release "
        f"{_following(release)}), or keep the published one."
    )


def tag_is_announced(name: str, release: str, push: str) -> CheckFailedError:
    """Return the error for an immutable tag that another push has announced by the tag ``push``."""
    return CheckFailedError(
        f"{name}: a push of another image has announced this tag by {push}, and may still run. "
        "Nothing was tagged. Run again: without --release the image gets the next release; "
        f"with it, give --release {_following(release)}."
    )


def _following(release: str) -> str:
    day, _, number = release.partition(".")
    return f"{day}.{int(number) + 1}"


def other_pushes(tags: Collection[str], immutable: str, own: str) -> list[str]:
    """Return the tags by which other pushes announce this immutable tag; ``own`` is ours."""
    prefix = push_prefix(immutable)
    return [tag for tag in tags if tag.startswith(prefix) and tag != own]


def existing_record(registry: RegistryClient, tag: str) -> Record | None:
    """Return the record of an immutable tag; None for a damaged one, to be written again."""
    try:
        return read_record(registry, tag)
    except DamagedError:
        return None


def check_release(release: str | None) -> None:
    """Raise InputError for what is no ``YYYYMMDD.N``."""
    try:
        if release is not None:
            date.fromisoformat(release[:8] if RELEASE.fullmatch(release) else "")
    except ValueError:
        raise InputError(
            f"--release {release!r} is no release; give YYYYMMDD.N: a day in UTC, and which time "
            f"of that day from 1 to {MOST_A_DAY} without zeros before it, such as 20261120.1."
        ) from None


def next_release(today: date, releases: Collection[str]) -> str:
    """Return the first release of a day that is none of these; InputError if none is left."""
    for number in range(1, MOST_A_DAY + 1):
        release = f"{today:%Y%m%d}.{number}"
        if release not in releases:
            return release
    raise InputError(f"{today} has had all of its {MOST_A_DAY} releases; wait for a day.")


def releases_in(tags: Collection[str], image: Candidate) -> list[str]:
    """Return the releases of which an image has its immutable tag among these, the latest first."""
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
    """Return the release that has this very image, or the day's next.

    ``tags`` are those of the repository. A release that another push has announced is passed over.

    CheckFailedError: a release of a later day exists, so this one would not be the latest.
    """
    releases = releases_in(tags, image)
    for release in releases:
        manifest = registry.manifest(image.tags(release).immutable)
        if manifest and manifest.is_image(image.stored.id):
            return release
    if releases and releases[0][:8] > f"{today:%Y%m%d}":
        raise CheckFailedError(
            f"{registry.name} has release {releases[0]} of {image.name}, and here it is {today}. "
            "Set the clock; or, if somebody chose that release, choose a later one: --release."
        )
    while True:
        release = next_release(today, releases)
        immutable = image.tags(release).immutable
        if not other_pushes(tags, immutable, push_tag(immutable, image.stored.id, machine)):
            return release
        releases.append(release)


def later_images(
    registry: RegistryClient, record: Record, moving: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the moving tags of a published image that later images have, each with its image.

    That is named by its immutable tag. ``moving`` has the digests of the moving tags. All records
    are read, only if a tag is neither missing nor the image's own.
    """
    if not {*moving.values()} - {None, record.digest}:
        return {}
    later = {
        other.digest: other.tag
        for other in read_published(registry).whole
        if other.image == record.image and other.age > record.age
    }
    return {tag: later[digest] for tag, digest in moving.items() if digest in later}
