"""How long is waited between tries."""

import pytest

from imgbuild.registry.patience import Patience, retry_after

NOON = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


def test_the_most_of_a_wait_doubles_up_to_a_limit() -> None:
    patience = Patience(9, 2.0, 30.0, between=lambda least, most: least + most)
    assert [patience.seconds(failed, None) for failed in range(1, 7)] == [2, 4, 8, 16, 30, 30]


def test_any_wait_up_to_the_most_is_possible() -> None:
    patience = Patience(5, 4.0)
    waits = [patience.seconds(2, None) for _ in range(200)]
    assert all(0 <= wait <= 8 for wait in waits)
    assert len(set(waits)) > 100


def test_what_the_registry_asks_for_is_the_least() -> None:
    patience = Patience(5, 1.0, 60.0)
    assert patience.seconds(1, 17.0) == 17
    assert patience.seconds(1, 240.0) == 240
    assert Patience(5, 100.0, between=lambda _, most: most).seconds(1, 5.0) == 60


def test_there_is_another_try_unless_a_long_wait_is_asked_for() -> None:
    patience = Patience(5)
    assert [patience.ends(failed, None) for failed in (1, 4, 5)] == [False, False, True]
    assert not patience.ends(1, 300.0)
    assert patience.ends(1, 301.0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("²", None),
        ("", None),
    ],
)
def test_forms_of_retry_after(value: str, expected: float | None) -> None:
    assert retry_after({"Retry-After": value}, lambda: NOON) == expected
    assert retry_after({}, lambda: NOON) is None
