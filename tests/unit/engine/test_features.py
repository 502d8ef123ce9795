"""The trial build, with a program that plays buildx."""

import subprocess
from pathlib import Path

import fake_buildx
import pytest
from fake_engine import FakeEngine

from imgbuild.engine import features
from imgbuild.engine.buildx import Buildx
from imgbuild.engine.types import StoredImage
from imgbuild.errors import MachineError

BUILT = fake_buildx.metadata(features.MARK)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine([StoredImage(fake_buildx.IMAGE)])
    monkeypatch.setattr(features, "Engine", lambda _host: engine)
    return engine


def failing(folder: Path, words: str) -> Buildx:
    (folder / "broken.rawjson").write_text(words)
    return fake_buildx.replaying(folder, folder / "broken", code=1)


def test_nothing_is_missing_and_nothing_stays(tmp_path: Path, engine: FakeEngine) -> None:
    buildx = fake_buildx.replaying(tmp_path, fake_buildx.SAMPLES / "ok", built=BUILT)
    assert features.missing_features(buildx, None) == ()
    assert engine.stored == {}
    assert engine.closed


@pytest.mark.usefixtures("engine")
def test_what_is_missing_is_named(tmp_path: Path) -> None:
    buildx = failing(tmp_path, "ERROR: failed to solve: unknown flag: link\n")
    missing = features.missing_features(buildx, None)
    assert [one.name for one in missing] == [*features.FEATURES]
    assert missing[0].reason == "unknown flag: link"


def test_an_image_that_is_not_in_the_engine_is_a_fault(tmp_path: Path, engine: FakeEngine) -> None:
    engine.stored.clear()
    buildx = fake_buildx.replaying(tmp_path, fake_buildx.SAMPLES / "ok", built=BUILT)
    missing = features.missing_features(buildx, None)
    assert all("not in the engine" in one.reason for one in missing)
    assert missing


def test_without_an_engine_nothing_is_tried(tmp_path: Path) -> None:
    buildx = failing(tmp_path, "ERROR: Cannot connect to the Docker daemon at unix:///x.sock.\n")
    with pytest.raises(MachineError, match="cannot be reached"):
        features.missing_features(buildx, None)


def test_the_program_is_one_that_runs(tmp_path: Path) -> None:
    folder = features._prepared(tmp_path)
    program = folder / "named" / features.MARK
    assert program.stat().st_size < 200
    assert subprocess.run([str(program)], check=False).returncode == 0
