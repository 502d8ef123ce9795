"""The tags of an image, built here or published, and their rules over the whole matrix."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from imgbuild.core.files import sha256
from imgbuild.core.yaml_file import Fault, Location
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rule_model import Part

#: The form of a tag. Source: OCI Distribution Specification 1.1, "Pulling manifests".
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
LONGEST_TAG = 128
#: A release as a part of a tag: a day and a number.
RELEASE = re.compile(r"(?<![^-])[0-9]{8}\.[1-9][0-9]{0,3}(?![^-])")
LONGEST_RELEASE = "20991231.9999"
#: In place of a release where none is meant; no release and no name of the matrix is upper-case.
PLACEHOLDER = "RELEASE"
#: The record of an image lies under its immutable tag with this.
RECORD_SUFFIX = ".record"
#: Before the input digest, in the tag by which an image is found.
INPUT_PREFIX = "input-"
#: The beginning of the tags under which pushes send an image before it has its immutable tag.
PUSH_PREFIX = "push-"
#: The tags with suite results and Horovod wheels, which earlier versions wrote, begin so.
VERDICTS_PREFIX, WHEEL_PREFIX = "verdicts-", "wheel-"
#: No tag of an extended image begins with one of these.
RESERVED_PREFIXES = (INPUT_PREFIX, PUSH_PREFIX, VERDICTS_PREFIX, WHEEL_PREFIX)


@dataclass(frozen=True)
class PlannedTags:
    """The tag that never moves, and those that move to the newest release, without a repository."""

    immutable: str
    moving: tuple[str, ...]


def record_tag(immutable: str) -> str:
    return f"{immutable}{RECORD_SUFFIX}"


def input_tag(digest: str) -> str:
    """Return the tag by which an image is found that was built from inputs with this digest."""
    return f"{INPUT_PREFIX}{digest.removeprefix('sha256:')}"


def push_tag(immutable: str, image_id: str, machine: str) -> str:
    """Return the tag under which a machine sends an image that is to get an immutable tag.

    It is the same for another try of the same machine, and differs for other images and machines.
    """
    return f"{push_prefix(immutable)}{_short_digest(f'{image_id} {machine}')}"


def push_prefix(immutable: str) -> str:
    """Return the beginning of `push_tag` for every image that is to get this immutable tag."""
    return f"{PUSH_PREFIX}{_short_digest(immutable)}-"


def _short_digest(text: str) -> str:
    return sha256(text.encode())[:24]


def python_part(version: str) -> str:
    """Return e.g. ``py36`` of 3.6.15."""
    return f"py{''.join(version.split('.')[:2])}"


def join_parts(scheme: Iterable[Part], parts: Mapping[Part, str]) -> str:
    return "-".join(filter(None, (parts.get(part, "") for part in scheme)))


def find_tag_faults(
    matrix: Matrix, parts_by_image: Mapping[str, Mapping[Part, str]]
) -> Iterator[Fault]:
    """Yield every fault of the scheme of tags; the parts are those of all images, by name.

    Every tag is one that registries take, leaves space for its record, and belongs to one image.
    """
    schemes: dict[Location, tuple[Part, ...]] = {("tags", "immutable"): matrix.tags.immutable}
    schemes |= {("tags", "moving", i): parts for i, parts in enumerate(matrix.tags.moving)}
    owners: dict[str, tuple[str, Location]] = {}
    for at, scheme in schemes.items():
        moves = _is_moving(at)
        tags = [
            (name, join_parts(scheme, {**parts, "release": LONGEST_RELEASE}))
            for name, parts in parts_by_image.items()
        ]
        faults = (
            _find_part_faults(scheme, moves),
            _find_unusable(tags, moves),
            _find_shared(at, tags, owners),
        )
        yield from (Fault(at, f"{_title(at)}: {text}") for text in chain(*faults))


def _is_moving(at: Location) -> bool:
    return "moving" in at


def _title(at: Location) -> str:
    return f"tags.{at[1]}" + (f", entry {int(at[2]) + 1}" if _is_moving(at) else "")


def _find_part_faults(scheme: tuple[Part, ...], moves: bool) -> Iterator[str]:
    for part in sorted({part for part in scheme if scheme.count(part) > 1}):
        yield f"the part {part!r} is listed twice; leave one out"
    if moves and "release" in scheme:
        yield "a tag that names its release cannot move to the next one"
    if not moves and "release" not in scheme:
        yield "the part 'release' is missing: without it the next release would have the same tag"


def _find_unusable(tags: Sequence[tuple[str, str]], moves: bool) -> Iterable[str]:
    """Return each reason why tags are refused, with the first such image."""
    longest = LONGEST_TAG - (0 if moves else len(RECORD_SUFFIX))
    faults: dict[str, str] = {}
    for name, tag in tags:
        if reason := _explain_refusal(tag, longest):
            faults.setdefault(reason, f"{name} would be {tag!r}: {reason}")
    return faults.values()


def _explain_refusal(tag: str, longest: int) -> str | None:
    if tag.endswith(RECORD_SUFFIX):
        return f"tags that end in {RECORD_SUFFIX!r} are for records"
    if len(tag) > longest:
        return f"a tag has at most {longest} characters here"
    if not TAG.fullmatch(tag):
        return "a registry takes letters, digits and '_.-', and none of '.-' at the beginning"
    return None


def _find_shared(
    at: Location, tags: Sequence[tuple[str, str]], owners: dict[str, tuple[str, Location]]
) -> Iterator[str]:
    """Yield a tag that is another image's or another scheme's too; ``owners`` has the others'."""
    clashes = []
    for name, tag in tags:
        # Whatever looks like a release counts as one: it could be that of another image.
        owner, first = owners.setdefault(RELEASE.sub("RELEASE", tag), (name, at))
        if tag and (owner != name or _is_moving(first) != _is_moving(at)):
            clashes.append(f"{name} would be {tag}, as {owner} is by {_title(first)}")
    if clashes:
        more = f" (and {len(clashes) - 1} more)" if len(clashes) > 1 else ""
        yield f"{clashes[0]}{more}; add a part that tells them apart"
