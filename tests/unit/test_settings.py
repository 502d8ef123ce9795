"""Settings of a file and of the command line, the sites they name, and no secret in a message."""

from pathlib import Path

import pytest

from imgbuild.errors import InputError
from imgbuild.settings import Credentials, Settings, Sites, load_settings


@pytest.mark.parametrize(
    "word", ["ubuntu", "=http://m/", "ubuntu=ftp://m/", "ubuntu=http://m/$(x)"]
)
def test_what_is_no_mirror_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("IMGBUILD_MIRRORS", word)
    with pytest.raises(InputError, match=r"give NAME=URL|is not the URL of a site"):
        load_settings(tmp_path / "absent.yaml")


def test_a_file_that_is_named_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings(tmp_path / "absent.yaml") == Settings()
    monkeypatch.setenv("IMGBUILD_SETTINGS", str(tmp_path / "absent.yaml"))
    with pytest.raises(InputError, match="no such file"):
        load_settings(tmp_path / "absent.yaml")


def test_a_login_in_an_address_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, address = tmp_path / "imgbuild.local.yaml", "https://name:secret@mirror.example.org/"
    path.write_text(f"mirrors: {{ubuntu: '{address}'}}\n")
    with pytest.raises(InputError, match="netrc") as caught:
        load_settings(path)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("IMGBUILD_MIRRORS", f"ubuntu={address}")
    with pytest.raises(InputError, match=r"--mirror ubuntu: .* netrc") as caught:
        load_settings(tmp_path / "absent.yaml")
    assert "secret" not in str(caught.value)


def test_mirrors_of_the_command_line_take_the_place_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text("mirrors: {ubuntu: http://file/u, intel: http://file/i}\n")
    monkeypatch.setenv("IMGBUILD_MIRRORS", "ubuntu=http://line/u")
    urls = {name: mirror.url for name, mirror in load_settings(path).mirrors.items()}
    assert urls == {"ubuntu": "http://line/u", "intel": "http://file/i"}


def test_a_step_may_run_as_long_as_is_set(tmp_path: Path) -> None:
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text("engine: {step_timeout: 1h30m}\n")
    engine = load_settings(path).engine
    assert engine.step_timeout == 5400
    assert engine.model_dump(exclude_none=True) == {"step_timeout": "1h30m"}
    path.write_text("engine: {step_timeout: 30}\n")
    with pytest.raises(InputError, match="'30' is not a duration, such as 90s"):
        load_settings(path)


UPSTREAMS = {
    "files": "https://up.example",
    "deep": "https://up.example/deep/",
    "b": "https://b.example/x",
}
MIRRORS = {"files": "http://m.example/files/", "deep": "https://d.example"}


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
    sites = Sites(UPSTREAMS, Settings.model_validate({"mirrors": MIRRORS}))
    assert sites.address(url) == expected


def test_a_login_shows_nothing() -> None:
    assert "secret" not in repr(Credentials("me", "secret", "secret"))
    assert Credentials("me", "x").basic == "Basic bWU6eA=="


def test_the_ca_bundle_is_the_configured_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.touch()
    other.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    assert Sites(settings=Settings(ca_bundle=str(one))).verify == str(one)
    assert Sites().verify == str(other)
    monkeypatch.setenv("SSL_CERT_FILE", "/none")
    with pytest.raises(InputError, match="SSL_CERT_FILE names /none, which does not exist"):
        Sites().verify  # noqa: B018 - a property
    with pytest.raises(InputError, match="The settings: ca_bundle names /none, which does not"):
        Sites(settings=Settings(ca_bundle="/none")).verify  # noqa: B018 - a property


def test_a_mirror_is_advised_as_one_of_the_settings_or_the_command_line() -> None:
    sites = Sites(UPSTREAMS, Settings.model_validate({"mirrors": MIRRORS}))
    assert "the settings or --mirror" in sites.advice("http://m.example/files/f")
    assert "name a mirror" in sites.advice("https://up.example/f")
