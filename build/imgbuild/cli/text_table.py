"""Columns of plain text: readable on a terminal of any width, in a log, and by ``awk``."""

from collections.abc import Iterable, Iterator, Sequence

#: The columns of the narrowest terminal that is thought of.
WIDTH = 80
_INDENT = "  "


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
    either where it is `wrapped`.
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
