"""Which address is asked, and what of it is shown."""

import pytest

from imgbuild.sites import Credentials, Sites

SITES = Sites(
    {"files": "https://up.example", "deep": "https://up.example/deep/", "b": "https://b.example/x"},
    {"files": "http://m.example/files/", "deep": "https://d.example"},
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://up.example/a/f.tar", "http://m.example/files/a/f.tar"),
        ("https://up.example/deep/f.tar", "https://d.example/f.tar"),
        ("https://up.example/deeper/f.tar", "http://m.example/files/deeper/f.tar"),
        ("https://up.example.org/f", "https://up.example.org/f"),
        ("https://b.example/x/f", "https://b.example/x/f"),
        ("https://c.example/f", "https://c.example/f"),
    ],
)
def test_the_most_exact_mirror_is_asked(url: str, expected: str) -> None:
    assert SITES.address(url) == expected


def test_a_login_shows_nothing() -> None:
    assert "secret" not in repr(Credentials("me", "secret", "secret"))
    assert Credentials("me", "x").basic == "Basic bWU6eA=="
