"""Which value of the matrix would have worked, nearest to the one that does not."""

import re
from itertools import zip_longest

from imgbuild.matrix.model import Matrix
from imgbuild.rules.checks import numbers
from imgbuild.rules.facts import Pins, known_values
from imgbuild.rules.judge import Broken, broken_rules

_NAMED = re.compile(r"(?P<name>.*?)-?(?P<version>[0-9][0-9.]*)")


def nearest_that_works(matrix: Matrix, pins: Pins, broken: Broken) -> str | None:
    """Return the value of the judged pin that breaks none of the pin's rules; None if none.

    It is the next older or the next newer one, whichever is nearer, the newer of two equally near.
    Values of another name (``ubuntu-18.04`` for ``debian-12``) come after all of the same name.
    """
    component = broken.rule.judges
    if broken.is_of_a_table:
        return (broken.rule.minimum or {}).get(broken.pin)
    working = [
        value
        for value in known_values(matrix, component)
        if not _breaks(matrix, {**pins, component: value}, component)
    ]
    return _nearest(broken.pin, working)


def _breaks(matrix: Matrix, pins: Pins, component: str) -> bool:
    found = broken_rules(matrix, pins)
    return any(b.rule.judges == component and not b.is_of_a_table for b in found)


def _nearest(wrong: str, values: list[str]) -> str | None:
    name, version = _parts(wrong)
    candidates = [value for value in values if _parts(value)[0] == name] or values
    older = [value for value in candidates if _parts(value)[1] < version]
    newer = [value for value in candidates if _parts(value)[1] >= version]
    next_ones = [
        *([min(newer, key=lambda value: _parts(value)[1])] if newer else []),
        *([max(older, key=lambda value: _parts(value)[1])] if older else []),
    ]
    return min(next_ones, key=lambda value: _distance(version, _parts(value)[1]), default=None)


def _distance(version: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    return [abs(a - b) for a, b in zip_longest(version, other, fillvalue=0)]


def _parts(value: str) -> tuple[str, tuple[int, ...]]:
    match = _NAMED.fullmatch(value)
    return (match["name"], numbers(match["version"])) if match else (value, ())
