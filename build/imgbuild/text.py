"""Durations, sizes and tables as people read and write them."""

import re
from collections.abc import Iterable, Iterator, Sequence

#: The columns of the narrowest terminal that tables are made for.
WIDTH = 80
_INDENT = "  "
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_duration(text: str) -> float:
    """Return the seconds of ``90s``, ``30m``, ``1h``, ``1h30m``, or ``0``.

    Raises:
        ValueError: it is of another form; a number without a unit is refused, except 0.

    """
    if text == "0":
        return 0.0
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise ValueError(f"{text!r} is not a duration, such as 90s, 30m or 1h30m (0: none)")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


def duration_text(seconds: float) -> str:
    """Return a duration in the form that `parse_duration` reads, in whole seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0"


def size_text(size: int) -> str:
    """Return a size in bytes as people read it, in powers of ten."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, each column as wide as its widest cell."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def fitted(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return each row's lines: one, or, where one is too wide, the first cell alone and the rest.

    All rows of a table are the same in that. What stands below a row is no wider than `WIDTH`
    either if it is `wrapped`.
    """
    table = aligned(rows)
    if max(map(len, table)) <= WIDTH:
        return [[line] for line in table]
    rest = aligned([row[1:] for row in rows])
    return [[row[0], f"{_INDENT}{line}"] for row, line in zip(rows, rest, strict=True)]


def wrapped(words: Iterable[str]) -> Iterator[str]:
    """Yield indented lines of words, none of which is cut: a tag can be copied as a whole."""
    line = ""
    for word in words:
        if line and len(_INDENT) + len(line) + 1 + len(word) > WIDTH:
            yield f"{_INDENT}{line}"
            line = ""
        line = f"{line} {word}" if line else word
    if line:
        yield f"{_INDENT}{line}"
