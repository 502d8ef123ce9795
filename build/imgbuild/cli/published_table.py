"""What ``imgbuild published`` prints: a line an image, its tags below it. 1 MB is 10⁶ bytes."""

from typing import Any

from imgbuild.publishing.index import Index
from imgbuild.publishing.record import Record
from imgbuild.text import fitted, wrapped

#: Digits of a digest that are shown, as engines show them.
_DIGITS = 12


def published_lines(index: Index) -> list[str]:
    """Return the table, by image, of each the latest first.

    Below a row are the suites that did not pass, if there are any, and what the image can be pulled
    by: the immutable tag, then those moving tags that point to it now.
    """
    records = sorted(index.records, key=lambda record: record.age, reverse=True)
    records.sort(key=lambda record: record.image)
    header = ("image", "digest", "MB", "published", "suites")
    head, *rows = fitted([header, *(_row(record) for record in records)])
    lines = head
    for row, record in zip(rows, records, strict=True):
        tags = (record.tag, *index.moving(record))
        lines += [*row, *wrapped(_others(record)), *wrapped(tags)]
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
    passed = sum(one.verdict == "passed" for one in record.suites)
    return record.image, digest, f"{record.size / 1e6:.1f}", when, f"{passed} passed"


def _others(record: Record) -> list[str]:
    """Return the words for the suites that did not pass: those that were skipped."""
    other = [f"{one.suite} {one.verdict}" for one in record.suites if one.verdict != "passed"]
    return f"suites: {', '.join(other)}".split() if other else []
