"""The programs that run in the builder stage stop the build when what they rest on is not so."""

import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.project import Project

GOOD = """static _Res _M_invoke(const _Any_data& __functor, _ArgTypes&&... __args)
using _Invoker_type = _Res (*)(const _Any_data&, _ArgTypes&&...);
"""


def _run(program: Path, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        env={"PYTHONPATH": str(path), "PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "module", ["COMPILER_VERSION = '4.8.5'", "class version: COMPILER_VERSION = '4.8.5'"]
)
@pytest.mark.parametrize(("expected", "code"), [("4.8.4", 0), ("7.3.1", 1)])
def test_another_compiler_than_the_matrix_says(
    project: Project, tmp_path: Path, module: str, expected: str, code: int
) -> None:
    (tmp_path / "tensorflow.py").write_text(module)
    result = _run(project.files / "check_compiler.py", expected, path=tmp_path)
    assert result.returncode == code
    assert ("built by gcc 4.8.5; the matrix says 7.3.1" in result.stderr) is bool(code)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (GOOD, ""),
        (GOOD.replace("_ArgTypes&&... __args", "_ArgTypes... __args"), "another shape"),
        (GOOD.replace("_Invoker_type", "_Other_type"), "another shape"),
        (None, "is it older than 7?"),
    ],
)
def test_a_header_of_another_shape(
    project: Project, tmp_path: Path, header: str | None, expected: str
) -> None:
    source = tmp_path / "bits" / "std_function.h"
    source.parent.mkdir()
    source.write_text(header or "")
    line = f'# 1 "{source}"' if header else "nothing of the kind"
    (tmp_path / "g++").write_text(f"#!/bin/sh\necho '{line}'\n")
    (tmp_path / "g++").chmod(0o755)
    target = tmp_path / "out"
    result = _run(project.files / "gcc4_std_function.py", str(target), path=tmp_path)
    assert expected in result.stderr
    assert (result.returncode == 0) is (expected == "")
    if not expected:
        assert "&&" not in (target / "bits" / "std_function.h").read_text()
    else:
        assert not target.exists() or not list(target.rglob("*.h"))
