"""Commands that resolve packages run no code of one on this machine: they need an engine for it."""

import os
from pathlib import Path
from typing import Any

import pytest

from imgbuild.core.project import Project
from imgbuild.locks.lockfile import read_lock
from support.hostile_package import IN_TREE, HostileIndex
from support.project_copy import NO_ENGINE, ROOT, ProjectCopy, copied, run_main
from support.releases import release_of


@pytest.fixture
def index(tmp_path: Path, project: Project) -> HostileIndex:
    """Return an index with what tf-2.2-cpu-debian has, and a package whose code leaves a file."""
    (made := HostileIndex(tmp_path / "index")).folder.mkdir()
    for name, version in read_lock(project.locks / lock_name()).versions.items():
        made.wheel(name, version)
    made.source("evil", "1.0", IN_TREE)
    return made


def lock_name() -> str:
    return f"tf-{release_of('2.2')}-py3.6-cpu.txt"


def environment(index: HostileIndex, place: str) -> dict[str, str]:
    """Return variables with which uv finds the packages in a folder, or by pages."""
    variables = {**NO_ENGINE, "UV_OFFLINE": "1", "IMGBUILD_SETTINGS": os.devnull}
    home = str(index.folder.with_name("home"))
    variables |= {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache"}
    if place == "folder":
        return {**variables, "UV_FIND_LINKS": str(index.folder)}
    return {**variables, "UV_DEFAULT_INDEX": index.pages()}


@pytest.mark.parametrize("place", ["folder", "pages"])
def test_extend_print(index: HostileIndex, tmp_path: Path, place: str) -> None:
    (here := tmp_path / "here").mkdir()
    words = ("--tf", "2.2", "--pip", "evil==1.0", "-t", "me/x:1", "--print", "--project", str(ROOT))
    ran = run_main(here, "extend", *words, env=environment(index, place))
    assert not index.mark.exists()
    assert ran.returncode == 3, ran.stderr
    assert "evil 1.0 has no wheel for Python 3.6" in ran.stderr
    assert [*here.iterdir()] == []


@pytest.mark.parametrize("place", ["folder", "pages"])
def test_lock(index: HostileIndex, project: Project, tmp_path: Path, place: str) -> None:
    copy = ProjectCopy()
    copy.project = copied(project, tmp_path / "checkout")
    before = {path: path.read_bytes() for path in copy.project.locks.glob("*.txt")}

    def require(document: dict[str, Any]) -> None:
        condition = {"require": "evil==1.0", "tensorflow": f"=={release_of('2.2')}", "why": "x"}
        document["requirements"].append(condition)

    copy.edit_matrix(require)
    ran = run_main(copy.project.root, "lock", "--stack=debian", env=environment(index, place))
    assert not index.mark.exists()
    assert ran.returncode == 3, ran.stderr
    assert "evil 1.0 has no wheel for Python 3.6" in ran.stderr
    assert before == {path: path.read_bytes() for path in copy.project.locks.glob("*.txt")}
    check = run_main(copy.project.root, "lock", "--check", env=environment(index, place))
    assert (check.returncode, "evil is missing" in check.stderr) == (1, True), "without an engine"
