"""What every step of an image reads: the same bytes whatever the clock, seed and machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.core.project import Project

EPOCH = 1_793_491_200
PLACE = "/opt/python/lib"
MODULE = "def find(word):\n    return word in {'a', 'b', 'c', 'd', 'e', 'f'}\n"
MODULES = 9
#: Of a .pyc, PEP 552: bit 0 says that it is judged by its source's hash, not by time and size.
FLAGS, TIME = slice(4, 8), slice(8, 12)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "package").mkdir(parents=True)
    for number in range(MODULES):
        (folder / "package" / f"m{number}.py").write_text(MODULE)
    (folder / "link").symlink_to("package")
    return folder


def _run(project: Project, words: str) -> subprocess.CompletedProcess[str]:
    script = f". {project.files / 'reproducible.sh'}; set -eu; {words}"
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    return subprocess.run(
        ["sh", "-c", script], env=env, capture_output=True, text=True, check=False
    )


def test_byte_code_has_the_time_and_place_of_the_image(project: Project, tree: Path) -> None:
    ran = _run(project, f"compile_modules {sys.executable} {tree} {PLACE}")
    assert ran.returncode == 0, ran.stderr
    assert {path.lstat().st_mtime for path in (tree, *tree.rglob("*"))} == {EPOCH}
    compiled = {path.name: path.read_bytes() for path in tree.rglob("*.pyc")}
    assert len(compiled) == MODULES
    for name, content in compiled.items():
        assert content[FLAGS] == b"\0\0\0\0", f"{name} reads its source at each import"
        assert int.from_bytes(content[TIME], "little") == EPOCH
        assert PLACE.encode() in content
        assert str(tree).encode() not in content


def test_a_module_that_cannot_be_compiled_ends_the_step(project: Project, tree: Path) -> None:
    (tree / "package" / "m0.py").write_text("def\n")
    ran = _run(project, f"compile_modules {sys.executable} {tree} {PLACE}")
    assert ran.returncode != 0
    assert "SyntaxError" in ran.stderr
