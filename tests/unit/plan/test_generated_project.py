"""A generated checkout is planned as the real one is: each file read once, one question asked."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from checkout_copy import SETTINGS, Checkout
from fake_engine import FakeEngine

from imgbuild.inputs import build_inputs as inputs
from imgbuild.plan.plan import Action
from imgbuild.project import Project
from imgbuild.suites.store import ReportStore

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """Return the script of the benchmarks, which is in no package."""
    path = ROOT / "benchmarks" / "generated_project.py"
    spec = importlib.util.spec_from_file_location("generated_project", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _checkout(project: Project, folder: Path) -> Checkout:
    store = ReportStore(folder / "reports")
    return Checkout(project, FakeEngine(), folder / "cache", store, dict(SETTINGS))


@pytest.mark.parametrize("count", [1, 7, 75])
def test_it_has_as_many_images_as_wanted(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(inputs, "uv_context", lambda _: Path("/uv"))
    made: Project = generator.generated_project(tmp_path / "made", count)
    checkout = _checkout(made, tmp_path)
    assert len({image.name for image in checkout.images}) == count
    plan = checkout.plan()
    assert {item.action for item in plan.values()} == {Action.BUILD}
    assert len({item.digest.total for item in plan.values()}) == count
    checkout.build()
    assert checkout.rebuilt() == {}
    assert checkout.engine.calls == ["images"]


def test_no_file_is_read_once_for_each_image(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What grows with the square of the images would not read each of its files once."""
    monkeypatch.setattr(inputs, "uv_context", lambda _: Path("/uv"))
    made: Project = generator.generated_project(tmp_path / "made", 60)
    checkout = _checkout(made, tmp_path)
    read: Counter[Path] = Counter()
    real = Path.read_bytes

    def count_bytes(path: Path) -> bytes:
        read[path] += 1
        return real(path)

    context = checkout.context()
    monkeypatch.setattr(Path, "read_bytes", count_bytes)
    context.plan(test=True)
    folders = (made.dockerfiles, made.files, made.locks)
    counts = {path: n for path, n in read.items() if any(f in path.parents for f in folders)}
    # Layers are also read for the digest in their names.
    assert {n for path, n in counts.items() if made.locks in path.parents} <= {1, 2}
    assert {n for path, n in counts.items() if made.locks not in path.parents} == {1}
