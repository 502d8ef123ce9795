"""Which address is asked, and what of it is shown."""

from pathlib import Path

import pytest

from imgbuild.downloads.sites import Login, Sites, shown

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
    assert "secret" not in repr(Login("me", "secret"))
    assert "secret" not in f"{Login('me', 'secret')}"


def test_an_address_is_shown_without_what_could_be_a_key() -> None:
    assert shown("https://me:pw@x.example:8/a/b?sig=1#f") == "https://x.example:8/a/b"


def test_the_bundle_of_the_settings_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/from/environment.pem")
    assert Sites(ca_bundle=tmp_path / "ca.pem").verify == str(tmp_path / "ca.pem")
    assert Sites().verify == "/from/environment.pem"
