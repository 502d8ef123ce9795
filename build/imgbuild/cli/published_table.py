"""What ``imgbuild published`` prints: a line an image, its tags below it. 1 MB is 10⁶ bytes."""

from collections.abc import Iterator
from typing import Any

from imgbuild.cli.text_table import aligned
from imgbuild.publishing.index import Index
from imgbuild.publishing.record import Record

#: Digits of a digest that are shown, as engines show them.
_DIGITS = 12
_WIDTH = 100


def published_lines(index: Index) -> list[str]:
    """Return the table, by image, of each the latest first; tags are in lines of their own.

    A line of tags holds what the row's image can be pulled by: the immutable tag, then those moving
    tags that point to it now.
    """
    records = sorted(index.records, key=lambda record: record.age, reverse=True)
    records.sort(key=lambda record: record.image)
    header = ("image", "digest", "MB", "published", "suites")
    table = aligned([header, *(_row(record) for record in records)])
    lines = table[:1]
    for row, record in zip(table[1:], records, strict=True):
        lines += [row, *_wrapped((record.tag, *index.moving(record)))]
    return lines


def published_json(index: Index) -> list[dict[str, Any]]:
    """Return every record without its report; ``points_here`` are the moving tags it has now."""
    return [
        {
            **{key: value for key, value in record.as_json().items() if key != "report"},
            "points_here": list(index.moving(record)),
        }
        for record in index.records
    ]


def _row(record: Record) -> tuple[str, ...]:
    digest = record.digest.removeprefix("sha256:")[:_DIGITS]
    when = record.published[:16].replace("T", " ")
    return record.image, digest, f"{record.size / 1e6:.1f}", when, _suites(record)


def _suites(record: Record) -> str:
    """Return how many suites passed, and which did not: those that were skipped."""
    other = [f"{one.suite} {one.verdict}" for one in record.suites if one.verdict != "passed"]
    passed = len(record.suites) - len(other)
    return ", ".join([f"{passed} passed", *other])


def _wrapped(tags: tuple[str, ...]) -> Iterator[str]:
    line = " "
    for tag in tags:
        if len(line) > 1 and len(line) + 1 + len(tag) > _WIDTH:
            yield line
            line = " "
        line += f" {tag}"
    yield line
