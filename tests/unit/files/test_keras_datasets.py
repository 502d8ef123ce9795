"""``keras_datasets.py``: which modules of TensorFlow it changes, and when it stops the build."""

import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.core.project import Project

CALL = "  with np.load(path) as f:\n"
CHANGED = "  with np.load(path, allow_pickle=True) as f:\n"


def _run(project: Project, tree: Path) -> subprocess.CompletedProcess[str]:
    script = project.files / "packages" / "keras_datasets.py"
    return subprocess.run(
        [sys.executable, "-B", script, tree], capture_output=True, text=True, check=False
    )


def _tree(folder: Path, distribution: str, call: str) -> dict[str, Path]:
    """Make site-packages with a TensorFlow; return its modules by name."""
    modules = folder / "tensorflow" / "python" / "keras" / "datasets"
    modules.mkdir(parents=True)
    paths = {name: modules / f"{name}.py" for name in ("imdb", "mnist", "reuters")}
    for path in paths.values():
        path.write_text(f"def load_data(path):\n{call}    return f['x']\n")
    info = folder / f"{distribution}.dist-info"
    info.mkdir()
    rows = [f"{path.relative_to(folder)},sha256=x,1\n" for path in paths.values()]
    (info / "RECORD").write_text("".join(rows))
    return paths


@pytest.mark.parametrize(
    ("distribution", "changed"),
    [
        ("tensorflow-1.10.1", set()),
        ("tensorflow-1.11.0", {"imdb", "reuters"}),
        ("tensorflow_gpu-1.13.1", {"imdb", "reuters"}),
        ("tensorflow-1.14.0", {"reuters"}),
        ("tensorflow-1.15.5", set()),
        ("tensorflow_estimator-1.13.0", set()),
    ],
)
def test_keras_datasets_changes_modules(
    project: Project, tmp_path: Path, distribution: str, changed: set[str]
) -> None:
    paths = _tree(tmp_path, distribution, CALL)
    result = _run(project, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert {name for name, path in paths.items() if CHANGED in path.read_text()} == changed
    record = (tmp_path / f"{distribution}.dist-info" / "RECORD").read_text()
    for name, path in paths.items():
        assert (f"datasets/{name}.py,sha256=x,1\n" not in record) is (name in changed)
        if name in changed:
            assert f",{path.stat().st_size}\n" in record


@pytest.mark.parametrize("call", [CHANGED, CALL * 2, "  with numpy.load(path) as f:\n"])
def test_keras_datasets_stops_at_another_call(project: Project, tmp_path: Path, call: str) -> None:
    _tree(tmp_path, "tensorflow-1.13.1", call)
    result = _run(project, tmp_path)
    assert result.returncode == 1
    assert "imdb.py" in result.stderr
