"""Settings of the command line: mirrors by words, another file, and no secret in a message."""

from pathlib import Path

import pytest

from imgbuild.errors import InputError
from imgbuild.settings import load_settings, mirrors_of


def test_what_is_no_mirror_or_no_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in ("ubuntu", "=http://m/", "ubuntu=ftp://m/", "ubuntu=http://m/$(evil)"):
        with pytest.raises(InputError, match=r"give NAME=URL|is not the URL of a site"):
            mirrors_of([word])
    monkeypatch.setenv("IMGBUILD_SETTINGS", str(tmp_path / "absent.yaml"))
    with pytest.raises(InputError, match="no such file"):
        load_settings(tmp_path / "absent.yaml")


def test_a_login_in_an_address_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="netrc") as caught:
        mirrors_of(["ubuntu=https://name:secret@mirror.example.org/ubuntu"])
    assert "secret" not in str(caught.value)
    path = tmp_path / "imgbuild.local.yaml"
    path.write_text("mirrors: {ubuntu: 'https://name:secret@mirror.example.org/'}\n")
    with pytest.raises(InputError, match="netrc") as caught:
        load_settings(path)
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
    assert load_settings(path).engine.step_timeout == 5400
    path.write_text("engine: {step_timeout: 30}\n")
    with pytest.raises(InputError, match="'30' is not a duration, such as 90s"):
        load_settings(path)
