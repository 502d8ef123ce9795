"""The kinds of comparison a rule can ask for, and how to say what each wants."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from imgbuild.matrix.image import minor_of
from imgbuild.matrix.rule import Check
from imgbuild.rules.facts import Value


@dataclass(frozen=True)
class Comparison:
    """Whether a value stands beside what it is compared with, and what would."""

    holds: Callable[[str, Value], bool]
    wants: Callable[[Value], str]


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without zeros at the end: 2.10 is newer than 2.9."""
    found = [int(number) for number in re.findall(r"[0-9]+", version)]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def admits(specifier: str, version: str) -> bool:
    """Whether a version lies in a range such as ``>=1.1,<2``."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:  # a version of another kind lies in no range
        return False


def spelled(value: Value) -> str:
    """Return a fact as words."""
    return value if isinstance(value, str) else ", ".join(value) or "none"


def _all(value: Value) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _same_major_newer_minor(version: str, other: str) -> bool:
    mine, least = (*numbers(version), 0, 0), (*numbers(other), 0, 0)
    return mine[0] == least[0] and mine[1] >= least[1]


COMPARISONS: Mapping[Check, Comparison] = {
    "equal": Comparison(lambda value, fact: value == fact, spelled),
    "one-of": Comparison(
        lambda value, fact: value in _all(fact), lambda f: f"one of: {spelled(f)}"
    ),
    "range": Comparison(
        lambda value, fact: admits(spelled(fact), value), lambda f: f"a version in {spelled(f)}"
    ),
    "at-least": Comparison(
        lambda value, fact: numbers(value) >= numbers(spelled(fact)),
        lambda f: f"at least {spelled(f)}",
    ),
    "same-major-minor-at-least": Comparison(
        lambda value, fact: _same_major_newer_minor(value, spelled(fact)),
        lambda f: f"{minor_of(spelled(f))} or newer of the same major number",
    ),
    "release-one-of": Comparison(
        lambda value, fact: minor_of(value) in _all(fact),
        lambda f: f"a release of: {spelled(f)}",
    ),
}
