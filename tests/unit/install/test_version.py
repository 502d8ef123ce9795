"""The version of imgbuild is that of the tag in git. tests/e2e/test_package.py builds packages."""

import importlib
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from support.project_copy import ROOT


def _git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=one", "-c", "user.email=one@example.org")
    done = subprocess.run(["git", *name, *words], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the hooks, for the sources in ``tmp_path``."""
    monkeypatch.syspath_prepend(str(ROOT / "build"))
    module = importlib.import_module("hatch_build")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.mark.parametrize(
    ("tag", "later", "said"),
    [
        (None, False, "0+gCOMMIT"),
        ("v1.2.0", False, "1.2.0"),
        ("v1.2.0rc1", False, "1.2.0rc1"),
        ("v1.2.0", True, "1.2.0.post1+gCOMMIT"),
        ("20261120.1", False, "0+gCOMMIT"),
        ("v1-of-something", False, "0+gCOMMIT"),
    ],
)
def test_the_version_is_that_of_the_tag(
    hooks: ModuleType, tmp_path: Path, tag: str | None, later: bool, said: str
) -> None:
    _commit(tmp_path, tag)
    if later:
        _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "two")
    commit = _git(tmp_path, "rev-parse", "--short", "HEAD")
    assert hooks.version() == said.replace("COMMIT", commit)


def _commit(folder: Path, tag: str | None) -> None:
    _git(folder, "init", "-q")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    if tag:
        _git(folder, "tag", tag)


def test_outside_git_the_version_is_unknown(
    hooks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exported archive; also inside a repository of somebody else, and without git."""
    _commit(tmp_path, "v9.0")
    assert hooks.version() == "9.0"
    (tmp_path / "inside").mkdir()
    monkeypatch.setattr(hooks, "ROOT", tmp_path / "inside")
    assert hooks.version() == "0+unknown"
    monkeypatch.setattr(hooks, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hooks.version() == "0+unknown"
