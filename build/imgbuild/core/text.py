"""Format and parse durations, sizes, tables and messages for people."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

#: Columns of the narrowest terminal that tables fit into.
WIDTH = 80
_INDENT = "  "
#: The login of an address, with or without a scheme. A password may contain slashes, and blanks if
#: there is a scheme. Digits alone are a port. The name before a digest is not a login.
_LOGIN = re.compile(
    r"(?:(?<=://)(?!\[)(?:[^/\s]*|[^/\s:@]*:(?!\s|\d+(?![\w@+-]))[^@\n]{0,1000})"
    r"|(?<![^\s'\"(=])[^\s/:@'\"(=\[]+:(?!//|\d+(?![\w@+-]))[^\s@]{1,1000})@(?!sha256:)"
)
#: Characters that a terminal obeys instead of showing them: controls, and characters that change
#: the direction of text (UAX 9). Also lone surrogates, which cannot be printed.
_OBEYED = re.compile(
    r"[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")


def parse_duration(text: str) -> float:
    """Return the seconds of ``90s``, ``30m``, ``1h``, ``1h30m``, or ``0``.

    ValueError: the text has another form, for example a number other than 0 without a unit.
    """
    if text == "0":
        return 0.0
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is not a duration, such as 90s, 30m or 1h30m (0: none)")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


def duration_text(seconds: float) -> str:
    """Return a duration in the form that `parse_duration` reads, rounded to seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0"


def clock_time(seconds: float) -> str:
    """Return a duration for people: ``12.3s``, ``4m05s``, ``1h02m``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def count_text(count: int, noun: str) -> str:
    """Return ``1 image`` or ``3 images``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size_text(size: int) -> str:
    """Return a size in bytes for people, in decimal units."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def without_logins(text: str) -> str:
    """Return the text without the user names and passwords in addresses."""
    return _LOGIN.sub("", text)


def printable(text: str) -> str:
    """Replace the characters that a terminal obeys by their codes, as in JSON."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def slug(text: str, default: str) -> str:
    """Return a text as a part of a repository name: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or default


def ranges(some: Iterable[str], every: Sequence[str]) -> str:
    """Return ``some`` items in the order of ``every``; three or more in a row become ``a to c``."""
    selected, parts = {*some}, []
    for is_selected, group in groupby(every, selected.__contains__):
        run = [*group]
        if is_selected and len(run) > 2:
            run = [f"{run[0]} to {run[-1]}"]
        parts += run if is_selected else []
    return ", ".join(parts)


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines; each column is as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
    return lines


def table_with_notes(rows: Sequence[Sequence[str]], notes: Sequence[Iterable[str]]) -> list[str]:
    """Return a table with each row's notes below the row, in lines of at most `WIDTH`.

    If a row is too wide, the first cell of every row gets its own line.
    """
    table = [[line] for line in align_rows(rows)]
    if any(len(line) > WIDTH for (line,) in table):
        rest = align_rows([row[1:] for row in rows])
        table = [[row[0], f"{_INDENT}{line}"] for row, line in zip(rows, rest, strict=True)]
    lines: list[str] = []
    for row, texts in zip(table, notes, strict=True):
        lines += row
        for text in texts:
            lines += wrap_words(text)
    return lines


def wrap_words(text: str, indent: str = _INDENT) -> list[str]:
    """Wrap a text into indented lines without splitting words, so that users can copy tags."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
