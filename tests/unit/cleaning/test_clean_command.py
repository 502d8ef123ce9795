"""``imgbuild clean`` as a command: shows first, removes when told to, says what it left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fake_engine import FakeEngine
from test_images import CURRENT, NAME, OTHER, TAG, image
from typer.testing import CliRunner

import imgbuild.cleaning.survey  # noqa: F401  # before Engine is replaced
from imgbuild.build.context import image_locks
from imgbuild.cleaning.finding import Finding
from imgbuild.cleaning.images import Wanted
from imgbuild.cli import app, register
from imgbuild.cli.clean_tables import age_text, finding_lines
from imgbuild.errors import MachineError
from imgbuild.suites.store import ReportStore

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

register(app)
REMOTE = "registry.test/team/app:2.2.0-20261120.1"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    made = FakeEngine([image(1, OTHER), image(2, CURRENT, TAG)])
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _: made)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    ReportStore(tmp_path / "state" / "imgbuild" / "reports").begin(image(1).id)
    (tmp_path / "settings.yaml").touch()
    monkeypatch.setenv("IMGBUILD_SETTINGS", str(tmp_path / "settings.yaml"))
    wanted = Wanted("imgbuild/tensorflow", {NAME: CURRENT})
    monkeypatch.setattr("imgbuild.cleaning.wanted.wanted_images", lambda *_: wanted)
    return made


def _run(*options: str) -> Result:
    return CliRunner().invoke(app, ["clean", *options])


def test_without_options_it_only_shows(engine: FakeEngine) -> None:
    result = _run()
    assert result.exit_code == 0, result.output
    assert "dangling" in result.output
    assert "1 thing, at most 1.0 kB" in result.output
    assert "--yes removes this" in result.output
    assert "Not asked for, and left: images (1, 1.0 kB)" in result.output
    assert len(engine.stored) == 2
    assert engine.closed


def test_it_removes_when_told_to(engine: FakeEngine) -> None:
    result = _run("--yes")
    assert result.exit_code == 0, result.output
    assert "Removed 1 thing" in result.output
    assert [*engine.stored] == [image(2).id]
    assert "Nothing to clean." in _run("--only", "dangling").output


def test_named_images_go_only_when_they_are_meant(engine: FakeEngine) -> None:
    result = _run("--images", "--remove", "--json")
    assert result.exit_code == 0, result.output
    told: list[dict[str, Any]] = json.loads(result.output)
    assert {(one["kind"], one["removed"]) for one in told} == {
        ("dangling", True),
        ("images", True),
    }
    assert engine.stored == {}


def test_what_is_in_use_stays_and_is_an_error(engine: FakeEngine, tmp_path: Path) -> None:
    locks = tmp_path / "state" / "imgbuild" / "locks"
    with image_locks([NAME], "unix:///nowhere.sock", locks):
        result = _run("--yes")
    assert result.exit_code == 1
    assert "is at work on it" in result.output
    assert len(engine.stored) == 2


def test_a_build_that_starts_after_the_look_keeps_its_image(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imgbuild.cleaning.survey.busy_images", lambda _: {})
    locks = tmp_path / "state" / "imgbuild" / "locks"
    with image_locks([NAME], "unix:///nowhere.sock", locks):
        result = _run("--yes", "--only", "dangling")
    assert "is being built, tested or pushed by another imgbuild" in result.output
    assert len(engine.stored) == 2


def test_an_unknown_kind_is_refused(engine: FakeEngine) -> None:
    result = _run("--only", "everything")
    assert result.exception is not None
    assert "there is no such kind" in str(result.exception)
    assert engine.calls == []


def test_without_an_engine_the_disk_is_cleaned(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise MachineError("The engine cannot be used.")

    monkeypatch.setattr(engine, "version", refuse)
    stored = tmp_path / "cache" / "imgbuild" / "downloads" / "x"
    stored.parent.mkdir(parents=True)
    stored.write_text("x")
    result = _run("--yes", "--only", "cache")
    assert result.exit_code == 0, result.output
    assert "only the disk is looked at" in result.output
    assert not stored.exists()


def test_outside_a_checkout_nameless_images_stay(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = _run("--yes")
    assert result.exit_code == 0, result.output
    assert "nobody knows which nameless images are current" in result.output
    assert len(engine.stored) == 2


def test_a_broken_checkout_keeps_its_nameless_images(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Wanted:
        raise MachineError("no lock")

    monkeypatch.setattr("imgbuild.cleaning.wanted.wanted_images", broken)
    result = _run("--yes")
    assert "is not known, so they stay: no lock" in result.output
    assert len(engine.stored) == 2


def test_the_table_says_what_could_not_be_removed() -> None:
    kept = Finding("volumes", "v", "of a test", lambda: False, kept="it is in use")
    text = finding_lines([kept], [kept], removed=True)
    assert "of a test; kept: it is in use" in text
    assert "Nothing was removed." in text


def test_ages_are_in_their_largest_unit() -> None:
    ages = [age_text(1000, 1000 + passed) for passed in (0, 59, 60, 7200, 200_000)]
    assert ages == ["0 s", "59 s", "1 min", "2 h", "2 d"]
    assert age_text(0) == ""
