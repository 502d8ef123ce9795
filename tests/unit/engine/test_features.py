"""The trial build, with a program that plays buildx."""

from pathlib import Path

import pytest

from imgbuild.core.errors import MachineError
from imgbuild.engine import features
from imgbuild.engine.types import StoredImage
from support import fake_buildx
from support.fake_engine import FakeEngine

BUILT = fake_buildx.metadata(features.MARK)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine([StoredImage(fake_buildx.IMAGE)])
    monkeypatch.setattr(features, "Engine", lambda _host: engine)
    return engine


def test_nothing_is_missing_and_nothing_stays(tmp_path: Path, engine: FakeEngine) -> None:
    buildx = fake_buildx.replaying(tmp_path, fake_buildx.SAMPLES / "ok", built=BUILT)
    assert features.broken_feature(buildx) is None
    assert engine.stored == {}
    assert engine.closed
    assert "not in the engine" in (features.broken_feature(buildx) or "")


def test_a_missing_feature_is_told_from_a_missing_engine(tmp_path: Path) -> None:
    broken = tmp_path / "broken.rawjson"
    buildx = fake_buildx.replaying(tmp_path, broken.with_suffix(""), code=1)
    broken.write_text("ERROR: failed to solve: unknown flag: link\n")
    assert features.broken_feature(buildx) == "unknown flag: link"
    broken.write_text("ERROR: Cannot connect to the Docker daemon at unix:///x.sock.\n")
    with pytest.raises(MachineError, match="cannot be reached"):
        features.broken_feature(buildx)
