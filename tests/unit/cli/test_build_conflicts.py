"""Which options of ``build`` go together, and what is said of those that do not."""

from pathlib import Path

import pytest

from imgbuild.cli.build_conflicts import Given, conflict, require_consistent
from imgbuild.errors import InputError

HERE = Path()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Given(plan=True, refresh_base=True), "--plan makes nothing"),
        (Given(offline=HERE, refresh_base=True), "drop --refresh-base"),
        (Given(offline=HERE, seed=HERE), "--seed asks the network"),
        (Given(source="r.example.org/x"), "--from says where --pull looks"),
        (Given(source=""), "--from says where --pull looks"),
    ],
)
def test_what_does_not_go_together_is_refused(given: Given, said: str) -> None:
    assert said in (conflict(given) or "")
    with pytest.raises(InputError, match=said):
        require_consistent(given)


@pytest.mark.parametrize(
    "given",
    [
        Given(),
        Given(plan=True, offline=HERE),
        Given(plan=True, seed=HERE),
        Given(refresh_base=True, seed=HERE),
        Given(pull=True),
        Given(pull=True, source="r.example.org/x", plan=True, offline=HERE),
    ],
)
def test_what_goes_together_is_taken(given: Given) -> None:
    assert conflict(given) is None
    require_consistent(given)


@pytest.mark.parametrize(
    ("given", "option"),
    [(Given(offline=Path("nowhere")), "--offline"), (Given(seed=Path("nowhere")), "--seed")],
)
def test_a_folder_that_is_not_there_is_named(given: Given, option: str) -> None:
    with pytest.raises(InputError, match=f"^{option} nowhere: there is no such folder"):
        require_consistent(given)
