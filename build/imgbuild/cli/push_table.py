"""What ``imgbuild push`` prints at the end. 1 MB is 10⁶ bytes."""

from collections.abc import Sequence
from typing import Any

from imgbuild.cli.text_table import aligned
from imgbuild.publishing.family import Family
from imgbuild.publishing.foresee import Foreseen
from imgbuild.publishing.publish import Published

#: Digits of a digest that are shown, as engines show them.
_DIGITS = 12


def pushed_lines(repository: str, family: Family) -> list[str]:
    """Return the table of what was done, and how to pull the first image."""
    rows = [("image", "digest", "MB", "done"), *(_row(one) for one in family.published)]
    table = aligned(rows)
    lines = table[:1]
    for row, one in zip(table[1:], family.published, strict=True):
        lines += [row, f"  {one.record.tag}", *(f"  {text}" for text in one.left)]
    done = sum(bool(one.done) for one in family.published)
    rest = len(family.published) - done
    failed = [f"{len(family.errors)} failed"] if family.errors else []
    counts = ", ".join([f"{done} published", f"{rest} up to date", *failed])
    first = family.published[0].record
    usual = first.moving[-1] if first.moving else first.tag
    return [*lines, f"{counts}. docker pull {repository}:{usual}"]


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
    """Return a line an image: its immutable tag, and what is to be done for it."""
    rows = [(one.image, one.tag, ", ".join(one.to_do) or "up to date") for one in planned]
    return [f"to {repository}:", *aligned(rows)]


def planned_json(repository: str, planned: Sequence[Foreseen]) -> dict[str, Any]:
    """Return the same for programs."""
    images = [{"image": one.image, "tag": one.tag, "to_do": list(one.to_do)} for one in planned]
    return {"repository": repository, "images": images}


def _row(one: Published) -> tuple[str, ...]:
    record = one.record
    digest = record.digest.removeprefix("sha256:")[:_DIGITS]
    return record.image, digest, f"{record.size / 1e6:.0f}", ", ".join(one.done) or "up to date"
