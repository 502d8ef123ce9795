"""The tags that an image is published under, by the scheme of the matrix (docs/tags.md). Pure."""

from dataclasses import dataclass
from typing import Any

from imgbuild.matrix.image import Image
from imgbuild.matrix.tag_parts import joined, parts_of
from imgbuild.matrix.tags import RECORD_SUFFIX

#: In place of a release where none is meant; no release and no name of the matrix is upper-case.
PLACEHOLDER = "RELEASE"


@dataclass(frozen=True)
class PlannedTags:
    """The tag that never moves, and those that move to the newest release, in the scheme's order.

    They are tags alone, without a repository.
    """

    immutable: str
    moving: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {"immutable": self.immutable, "moving": list(self.moving)}


def planned_tags(image: Image, release: str = PLACEHOLDER) -> PlannedTags:
    """Return all tags of an image in one release."""
    return PlannedTags(immutable_tag(image, release), moving_tags(image))


def immutable_tag(image: Image, release: str) -> str:
    """Return the tag that says everything of an image in a release."""
    return joined(image.matrix.tags.immutable, {**parts_of(image), "release": release})


def moving_tags(image: Image) -> tuple[str, ...]:
    """Return the tags that move to the newest release, each once."""
    parts = parts_of(image)
    return tuple(dict.fromkeys(joined(scheme, parts) for scheme in image.matrix.tags.moving))


def record_tag(immutable: str) -> str:
    """Return the tag of the record of what was published under an immutable tag."""
    return f"{immutable}{RECORD_SUFFIX}"
