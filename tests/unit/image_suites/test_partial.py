"""Images from elsewhere: a check that asks for what was not given is not made, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from expectation import ExpectationError, parse_expectation
from test_collecting import run  # noqa: F401  # the fixture
from versions import begins

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

PARTIAL: dict[str, Any] = {
    "partial": True,
    "name": "me/mine",
    "tensorflow": "2.2",
    "variant": "cpu",
    "pins": {"tensorflow": "2.2"},
    "horovodrun": False,
    "gpu": {},
}


@pytest.mark.parametrize("fact", ["packages", "labels", "stack", "os_id", "mpi_flavour", "held"])
def test_what_was_not_given_ends_the_check(fact: str) -> None:
    with pytest.raises(pytest.skip.Exception, match=f"not asked: {fact}"):
        getattr(parse_expectation(PARTIAL), fact)


def test_a_pin_that_was_not_given_ends_the_check() -> None:
    pins = parse_expectation(PARTIAL).pins
    assert "git" not in pins
    with pytest.raises(pytest.skip.Exception, match="not asked: pin git"):
        pins["git"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"pin": {}}, "unknown: pin"),
        ({"horovodrun": "yes"}, "of a wrong type: horovodrun"),
        ({"partial": "yes"}, "unknown: partial"),
    ],
)
def test_a_malformed_one_is_refused(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(ExpectationError, match=fault):
        parse_expectation({**PARTIAL, **change})
    with pytest.raises(ExpectationError, match="missing: tensorflow"):
        parse_expectation({key: PARTIAL[key] for key in PARTIAL if key != "tensorflow"})


TEXT = """
def test_asks(expect): assert expect.labels
@pytest.fixture
def labels(expect): return expect.labels
def test_asks_by_a_fixture(labels): pass
def test_pin(component): assert component == "tensorflow"
@pytest.mark.pinned("git")
def test_git(): assert False
@pytest.mark.usefixtures("of_a_stack")
def test_place(): assert False
def test_other(): pass
"""


def test_checks_are_made_of_what_was_given_only(
    run: Callable[..., subprocess.CompletedProcess[str]],  # noqa: F811
) -> None:
    result = run(PARTIAL, pins=TEXT)
    assert "2 passed, 3 skipped" in result.stdout, result.stdout
    assert "not asked: labels" in result.stdout
    assert "not asked: stack" in result.stdout


def test_a_whole_expectation_allows_no_such_skip(
    run: Callable[..., subprocess.CompletedProcess[str]],  # noqa: F811
) -> None:
    from test_helpers import GOOD

    assert run(GOOD, pins="def test_it(): pytest.skip('not asked: labels')").returncode == 1


@pytest.mark.parametrize(
    ("pin", "found", "right"),
    [
        ("2.2", "2.2.0", True),
        ("2.2.0", "2.2.0", True),
        ("2.2", "2.20.0", False),
        ("2.2.0", "2.2", False),
        ("2", "2.2", True),
    ],
)
def test_a_version_may_be_given_in_short(pin: str, found: str, *, right: bool) -> None:
    assert begins("tensorflow", pin, found) is right
