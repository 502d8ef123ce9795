"""What ``imgbuild push`` prints at the end. 1 MB is 10⁶ bytes."""

from collections.abc import Sequence
from typing import Any

from imgbuild.publishing.family import Family
from imgbuild.publishing.foresee import Foreseen
from imgbuild.publishing.publish import Published
from imgbuild.text import fitted, wrapped

#: Digits of a digest that are shown, as engines show them.
_DIGITS = 12
#: How `Published.done` and `Foreseen.to_do` begin of a tag that moves.
_MOVING = ("move ", "moved ")


def pushed_lines(repository: str, family: Family) -> list[str]:
    """Return the table of what was done, each image's tags below it, and how to pull the first."""
    header = ("image", "digest", "MB", "done")
    lines, *rows = fitted([header, *(_row(one) for one in family.published)])
    for row, one in zip(rows, family.published, strict=True):
        lines += [*row, *wrapped(_tags(one)), *_kept(one.left)]
    done = sum(bool(one.done) for one in family.published)
    rest = len(family.published) - done
    failed = [f"{len(family.errors)} failed"] if family.errors else []
    counts = ", ".join([f"{done} published", f"{rest} up to date", *failed])
    first = family.published[0].record
    usual = first.moving[-1] if first.moving else first.tag
    return [*lines, f"{counts}.", f"docker pull {repository}:{usual}"]


def pushed_json(repository: str, family: Family) -> dict[str, Any]:
    """Return what was done, and what failed."""
    return {
        "repository": repository,
        "published": [
            {
                "image": one.record.image,
                "tag": one.record.tag,
                "moving": list(one.record.moving),
                "digest": one.record.digest,
                "size": one.record.size,
                "done": list(one.done),
                "left": list(one.left),
            }
            for one in family.published
        ],
        "failed": {name: str(error) for name, error in family.errors.items()},
    }


def planned_lines(repository: str, planned: Sequence[Foreseen]) -> list[str]:
    """Return a line an image: what is to be done for it; below it the tags that it would get."""
    lines = [f"to {repository}:"]
    rows = fitted([(one.image, _brief(one.to_do)) for one in planned])
    for row, one in zip(rows, planned, strict=True):
        lines += [*row, *wrapped((one.tag, *_moves(one.to_do))), *_kept(one.left)]
    return lines


def planned_json(repository: str, planned: Sequence[Foreseen]) -> dict[str, Any]:
    """Return the same for programs."""
    images = [
        {"image": one.image, "tag": one.tag, "to_do": list(one.to_do), "left": list(one.left)}
        for one in planned
    ]
    return {"repository": repository, "images": images}


def _row(one: Published) -> tuple[str, ...]:
    record = one.record
    digest = record.digest.removeprefix("sha256:")[:_DIGITS]
    return record.image, digest, f"{record.size / 1e6:.0f}", _brief(one.done)


def _tags(one: Published) -> tuple[str, ...]:
    """Return what the image can be pulled by: all its tags but those that a newer one keeps."""
    left = {text.partition(" ")[0] for text in one.left}
    return one.record.tag, *(tag for tag in one.record.moving if tag not in left)


def _kept(left: Sequence[str]) -> list[str]:
    """Return lines of the tags that a newer release keeps."""
    return [line for text in left for line in wrapped(text.split())]


def _brief(words: Sequence[str]) -> str:
    """Return what is or was done, with the number of the tags in place of their names."""
    moves = len(_moves(words))
    said = ["put back" if word.startswith("put back ") else word for word in words]
    said = [word for word in said if not word.startswith(_MOVING)]
    if moves:
        verb = next(word for word in words if word.startswith(_MOVING)).partition(" ")[0]
        said.append(f"{verb} {moves} {'tag' if moves == 1 else 'tags'}")
    return ", ".join(dict.fromkeys(said)) or "up to date"


def _moves(words: Sequence[str]) -> tuple[str, ...]:
    """Return the tags that are or were moved."""
    return tuple(word.partition(" ")[2] for word in words if word.startswith(_MOVING))
