"""The tags of images, and the checks of the tag scheme for the whole matrix."""

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
#: A placeholder for the release. No release and no name of the matrix is in upper case.
PLACEHOLDER = "RELEASE"
#: The tag of an image's record is the immutable tag with this suffix.
RECORD_SUFFIX = ".record"
#: The tag of a release's index for all platforms is the immutable tag for linux/amd64 with this.
INDEX_SUFFIX = "-index"
#: Prefix of the tag with the input digest, which finds an image by its inputs.
INPUT_PREFIX = "input-"
#: Prefix of the tags under which an image is pushed before it gets its immutable tag.
PUSH_PREFIX = "push-"
#: Prefixes of tags that earlier versions pushed: suite results and Horovod wheels.
VERDICTS_PREFIX, WHEEL_PREFIX = "verdicts-", "wheel-"
#: Prefixes that tags of extended images must not have.
RESERVED_PREFIXES = (INPUT_PREFIX, PUSH_PREFIX, VERDICTS_PREFIX, WHEEL_PREFIX)


@dataclass(frozen=True)
class PlannedTags:
    """The immutable tag, and the tags that move to the newest release, without repository."""

    immutable: str
    moving: tuple[str, ...]


def record_tag(immutable: str) -> str:
    return f"{immutable}{RECORD_SUFFIX}"


def index_tag(immutable: str) -> str:
    """Return the tag of a release's index from the tag of its image for linux/amd64."""
    return f"{immutable}{INDEX_SUFFIX}"


def input_tag(digest: str) -> str:
    """Return the tag of the image that was built from inputs with this digest."""
    return f"{INPUT_PREFIX}{digest.removeprefix('sha256:')}"


def push_tag(immutable: str, image_id: str, machine: str) -> str:
    """Return the tag under which a machine pushes an image before it gets its immutable tag.

    A retry on the same machine has the same tag. Other images and other machines have other tags.
    """
    return f"{push_prefix(immutable)}{_short_digest(f'{image_id} {machine}')}"


def push_prefix(immutable: str) -> str:
    """Return the prefix of `push_tag` for all images that are to get this immutable tag."""
    return f"{PUSH_PREFIX}{_short_digest(immutable)}-"


def _short_digest(text: str) -> str:
    return sha256(text.encode())[:24]


def python_part(version: str) -> str:
    """Return the part for a Python, for example ``py36`` for 3.6.15."""
    return f"py{''.join(version.split('.')[:2])}"


def join_parts(scheme: Iterable[Part], parts: Mapping[Part, str]) -> str:
    return "-".join(filter(None, (parts.get(part, "") for part in scheme)))


def find_tag_faults(
    matrix: Matrix, parts_by_image: Mapping[str, Mapping[Part, str]]
) -> Iterator[Fault]:
    """Yield the faults of the tag scheme; ``parts_by_image`` has the parts by image name.

    Every tag must be valid in a registry, leave space for the suffix of the record, and belong to
    one image.
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
        yield f"the part {part!r} is listed twice; remove one"
    if moves and "release" in scheme:
        yield "a moving tag cannot contain the release; remove the part 'release'"
    if not moves and "release" not in scheme:
        yield "the part 'release' is missing; add it, or the next release would have the same tag"


def _find_unusable(tags: Sequence[tuple[str, str]], moves: bool) -> Iterable[str]:
    """Return each reason why a tag is invalid, with the first image that has such a tag."""
    longest = LONGEST_TAG - (0 if moves else len(RECORD_SUFFIX))
    faults: dict[str, str] = {}
    for name, tag in tags:
        if reason := _explain_refusal(tag, longest):
            faults.setdefault(reason, f"{name} would be {tag!r}: {reason}")
    return faults.values()


def _explain_refusal(tag: str, longest: int) -> str | None:
    if tag.endswith(RECORD_SUFFIX):
        return f"only tags of records end in {RECORD_SUFFIX!r}"
    if tag.endswith(INDEX_SUFFIX):
        return f"only tags of indexes end in {INDEX_SUFFIX!r}"
    if len(tag) > longest:
        return f"this tag may have at most {longest} characters"
    if not TAG.fullmatch(tag):
        return "a tag consists of letters, digits and '_.-', and does not begin with '.' or '-'"
    return None


def _find_shared(
    at: Location, tags: Sequence[tuple[str, str]], owners: dict[str, tuple[str, Location]]
) -> Iterator[str]:
    """Yield one fault if tags belong to several images or schemes; ``owners`` has earlier tags."""
    clashes = []
    for name, tag in tags:
        # Any part that looks like a release could equal the release of another image's tag.
        owner, first = owners.setdefault(RELEASE.sub("RELEASE", tag), (name, at))
        if tag and (owner != name or _is_moving(first) != _is_moving(at)):
            clashes.append(f"{name} would be {tag}, which is the tag of {owner} by {_title(first)}")
    if clashes:
        more = f" (and {len(clashes) - 1} more)" if len(clashes) > 1 else ""
        yield f"{clashes[0]}{more}; add a part in which they differ"
