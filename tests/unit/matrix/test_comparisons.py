"""Every kind of comparison: what holds, what does not, and versions compared as numbers."""

from typing import get_args

import pytest

from imgbuild.matrix.model import Check
from imgbuild.matrix.rules import COMPARISONS, Value, admits, numbers


def test_every_kind_of_the_schema_is_there() -> None:
    assert {*COMPARISONS} == {*get_args(Check)}


@pytest.mark.parametrize(
    ("check", "value", "fact", "expected"),
    [
        ("equal", "10.1", "10.1", True),
        ("equal", "10.1", "10.10", False),
        ("one-of", "cp36", ("cp36", "cp37"), True),
        ("one-of", "debian-12", "debian-12", True),
        ("one-of", "debian-1", "debian-12", False),
        ("one-of", "cp38", (), False),
        ("range", "2.1.0", ">=1.1,<2.2", True),
        ("range", "2.2.0", ">=1.1,<2.2", False),
        ("at-least", "2.12", "2.12", True),
        ("at-least", "2.12.0", "2.12", True),
        ("at-least", "2.5", "2.12", False),
        ("at-least", "410.104", "410.48", True),
        ("same-major-minor-at-least", "7.6.3.30", "7.6.4", True),
        ("same-major-minor-at-least", "7.10.0", "7.6.4", True),
        ("same-major-minor-at-least", "7.5.9", "7.6.0", False),
        ("same-major-minor-at-least", "8.0.1", "7.6.0", False),
        ("same-major-minor-at-least", "8", "8.0", True),
        ("release-one-of", "4.8.5", ("4.8",), True),
        ("release-one-of", "4.9.1", ("4.8",), False),
        ("release-one-of", "4.8.5", (), False),
    ],
)
def test_a_comparison(check: Check, value: str, fact: Value, expected: bool) -> None:
    assert COMPARISONS[check].holds(value, fact) is expected


def test_versions_are_numbers_not_text() -> None:
    assert numbers("2.10") > numbers("2.9")
    assert numbers("7.6.0") == numbers("7.6")


def test_a_version_of_another_kind_lies_in_no_range() -> None:
    assert not admits(">=1", "1~2")
    assert admits(">=1", "2.0rc1")
