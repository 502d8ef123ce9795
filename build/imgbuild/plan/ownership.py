"""Tell imgbuild's own images from images that were built on top of them.

Labels alone do not tell: an image that somebody builds ``FROM`` one of these inherits every label
of it, and so does a container. What it cannot inherit is the time of creation: an image of imgbuild
was created at the epoch of its matrix, which is also in its labels. An image that adds settings
but no layer inherits even that; its history goes on after that of the image that it is from.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.engine.types import HistoryEntry, StoredImage
from imgbuild.inputs.oci_layout import REPOSITORY as BASE_REPOSITORY
from imgbuild.inputs.oci_layout import short_id

CREATED = "org.opencontainers.image.created"


def is_own(image: StoredImage, history: Callable[[str], Sequence[HistoryEntry]]) -> bool:
    """Return whether imgbuild built the image, rather than somebody on top of one.

    ``history`` gives an image's steps, the newest first. It is asked only for an image
    without a name of imgbuild's.
    """
    return is_surely_own(image) or (_says_so(image) and not _goes_on(history(image.id)))


def is_surely_own(image: StoredImage) -> bool:
    """Return whether imgbuild built the image, as far as is known without its history.

    Not of an image without a name of imgbuild's.
    """
    return _says_so(image) and bool(own_names(image))


def is_own_base(image: StoredImage) -> bool:
    """Return whether imgbuild made the base image: its own name ends with its own id."""
    ending = f"-{short_id(image.id)}"
    return any(t.startswith(f"{BASE_REPOSITORY}:") and t.endswith(ending) for t in image.tags)


def own_names(image: StoredImage) -> tuple[str, ...]:
    """Return the names that imgbuild gave; others that somebody added are not among them."""
    repository = image.labels.get(REPOSITORY)
    return tuple(tag for tag in image.tags if tag.rpartition(":")[0] == repository)


def _says_so(image: StoredImage) -> bool:
    """Return whether the labels are imgbuild's, and the time of creation is what they say."""
    labels = image.labels
    try:
        created = datetime.fromisoformat(labels[CREATED]).timestamp()
    except (KeyError, ValueError):
        return False
    return NAME in labels and INPUT_DIGEST in labels and int(created) == image.created


def _goes_on(history: Sequence[HistoryEntry]) -> bool:
    """Return whether there is more after the labels than a Dockerfile of imgbuild has."""
    later = []
    for entry in history:
        words = entry.made_by.split()
        if words[:1] == ["LABEL"] and f"{NAME}=" in entry.made_by:
            break
        later.append(words[0] if words else "")
    else:
        return False
    return len(set(later)) < len(later) or not {*later} <= {"ENTRYPOINT", "CMD"}
