"""Releases: a day, and the number of the release on that day."""

import re
from collections.abc import Collection
from datetime import date

from imgbuild.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import PLACEHOLDER, planned_tags

#: So many times a day: the scheme of tags has room for four digits (rules/tags.py).
MOST_A_DAY = 9999
_RELEASE = re.compile(r"(?P<day>[0-9]{8})\.(?P<number>[1-9][0-9]{0,3})")


def check_release(text: str) -> str:
    """Return a release that was given, as it is.

    Raises:
        InputError: it is no ``YYYYMMDD.N``.

    """
    match = _RELEASE.fullmatch(text)
    if match and _is_a_day(match["day"]):
        return text
    raise InputError(
        f"--release {text!r} is no release; give YYYYMMDD.N: a day in UTC, and which time of that "
        f"day from 1 to {MOST_A_DAY} without zeros before it, such as 20261120.1."
    )


def next_release(today: date, tags: Collection[str], *images: Image) -> str:
    """Return the first release of a day whose immutable tag is free for every one of the images.

    ``today`` is a day in UTC; ``tags`` are all tags that the registry has.

    Raises:
        InputError: that day has no release left.

    """
    taken = frozenset(tags)
    for number in range(1, MOST_A_DAY + 1):
        release = f"{today:%Y%m%d}.{number}"
        if not any(planned_tags(image, release).immutable in taken for image in images):
            return release
    names = ", ".join(image.name for image in images)
    raise InputError(f"{names}: {today} has had all of its {MOST_A_DAY} releases; wait for a day.")


def releases_in(tags: Collection[str], image: Image) -> tuple[str, ...]:
    """Return the releases of which an image has its immutable tag among these, the oldest first."""
    before, _, after = planned_tags(image, PLACEHOLDER).immutable.partition(PLACEHOLDER)
    found = [
        tag[len(before) : len(tag) - len(after)]
        for tag in tags
        if tag.startswith(before) and tag.endswith(after)
    ]
    releases = [_RELEASE.fullmatch(text) for text in found]
    ordered = sorted((one["day"], int(one["number"])) for one in releases if one)
    return tuple(f"{day}.{number}" for day, number in ordered)


def _is_a_day(text: str) -> bool:
    try:
        date(int(text[:4]), int(text[4:6]), int(text[6:]))
    except ValueError:
        return False
    return True
