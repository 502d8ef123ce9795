"""What must hold of the scheme of tags over the whole matrix; a broken one is a fault of the file.

Every tag is one that registries take, leaves room for its record, and belongs to one image alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imgbuild.matrix.image import as_documented_image, resolve_image
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.tag_parts import Parts, joined, parts_of
from imgbuild.matrix.tags import INDEX_TAG, RECORD_SUFFIX, Part
from imgbuild.yaml_document import Fault, Location

#: What a registry takes as a tag. Source: OCI Distribution Specification 1.1, "Pulling manifests".
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
LONGEST_TAG = 128
#: A release as the part of a tag: publishing/release.py says what it means.
RELEASE = re.compile(r"(?<![^-])[0-9]{8}\.[1-9][0-9]{0,3}(?![^-])")
LONGEST_RELEASE = "20991231.9999"


#: An image's name, and what its tags can say.
_Named = tuple[str, Parts]


@dataclass(frozen=True)
class _Scheme:
    at: Location
    parts: tuple[Part, ...]

    @property
    def moves(self) -> bool:
        return "moving" in self.at

    @property
    def name(self) -> str:
        return f"tags.{self.at[1]}" + (f", entry {int(self.at[2]) + 1}" if self.moves else "")


def tag_faults(matrix: Matrix) -> list[Fault]:
    """Return every fault of the scheme: a part in the wrong list, tags that cannot be, or clash."""
    schemes = [_Scheme(("tags", "immutable"), matrix.tags.immutable)]
    schemes += [_Scheme(("tags", "moving", i), p) for i, p in enumerate(matrix.tags.moving)]
    images = tuple(_images(matrix))
    empty = [Fault(one.at, f"{one.name} must not be empty") for one in schemes if not one.parts]
    schemes = [scheme for scheme in schemes if scheme.parts]
    return [
        *empty,
        *(fault for scheme in schemes for fault in _repeated(scheme)),
        *(fault for scheme in schemes for fault in _misplaced(scheme)),
        *(fault for scheme in schemes for fault in _unusable(scheme, images)),
        *_shared(schemes, images),
    ]


def _images(matrix: Matrix) -> Iterator[_Named]:
    """Yield name and parts of the family and of the images as documented.

    What refers to nothing is passed over: :mod:`imgbuild.matrix.references` names it.
    """
    for row in matrix.images:
        for variant in row.variants:
            try:
                image = resolve_image(matrix, row, variant)
                documented = as_documented_image(image)
                found = {one.name: parts_of(one) for one in (image, documented)}
            except KeyError:
                continue
            yield from found.items()


def _repeated(scheme: _Scheme) -> Iterator[Fault]:
    for place, part in enumerate(scheme.parts):
        if part in scheme.parts[:place]:
            what = f"the part {part!r} is there twice; leave one out"
            yield Fault((*scheme.at, place), f"{scheme.name}: {what}")


def _misplaced(scheme: _Scheme) -> Iterator[Fault]:
    if scheme.moves and "release" in scheme.parts:
        what = "a tag that says its release cannot move to the next one"
        yield Fault((*scheme.at, scheme.parts.index("release")), f"{scheme.name}: {what}")
    if not scheme.moves and "release" not in scheme.parts:
        what = "the part 'release' is missing: without it the next release would have the same tag"
        yield Fault(scheme.at, f"{scheme.name}: {what}")


def _tag(scheme: _Scheme, parts: Parts) -> str:
    """Return an image's tag, in the release that takes most room."""
    return joined(scheme.parts, {**parts, "release": LONGEST_RELEASE})


def _unusable(scheme: _Scheme, images: Sequence[_Named]) -> Iterator[Fault]:
    """Yield a fault for each reason why tags cannot be, with the first image that has one."""
    longest = LONGEST_TAG - (0 if scheme.moves else len(RECORD_SUFFIX))
    found: dict[str, str] = {}
    for name, parts in images:
        tag = _tag(scheme, parts)
        reason = _refused(tag, longest)
        if reason:
            found.setdefault(reason, f"{name} would be {tag!r}: {reason}")
    for text in found.values():
        yield Fault(scheme.at, f"{scheme.name}: {text}")


def _refused(tag: str, longest: int) -> str | None:
    if tag == INDEX_TAG or tag.endswith(RECORD_SUFFIX):
        return (
            f"{INDEX_TAG!r} and what ends in {RECORD_SUFFIX!r} are the tags of what was published"
        )
    if len(tag) > longest:
        return f"there is room for {longest} characters"
    if not TAG.fullmatch(tag):
        return "a registry takes letters, digits and '_.-', and none of '.-' at the beginning"
    return None


def _shared(schemes: Sequence[_Scheme], images: Sequence[_Named]) -> Iterator[Fault]:
    """Yield a fault for each scheme that gives a tag which another image has, or another kind."""
    owners: dict[str, tuple[str, _Scheme]] = {}
    for scheme in schemes:
        clashes = []
        for name, parts in images:
            tag = _tag(scheme, parts)
            if not tag:  # a fault of its own, told by _unusable
                continue
            # Whatever looks like a release counts as one: it could be that of another image.
            owner, first = owners.setdefault(RELEASE.sub("RELEASE", tag), (name, scheme))
            if owner != name or first.moves != scheme.moves:
                clashes.append(f"{name} would be {tag}, as {owner} is by {first.name}")
        if clashes:
            more = f" (and {len(clashes) - 1} more)" if len(clashes) > 1 else ""
            what = f"{clashes[0]}{more}; add a part that tells them apart"
            yield Fault(scheme.at, f"{scheme.name}: {what}")
