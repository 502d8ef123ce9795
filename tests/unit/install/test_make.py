"""``make`` with an environment that another user made."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of two users")


@pytest.fixture
def checkout() -> Iterator[Path]:
    """Give a checkout of root's that everybody may read, with an environment of programs."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        for file in ("Makefile", "pyproject.toml", "build/requirements.txt"):
            (root / file).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / file, root / file)
        for program in ("python", "pytest"):
            path = root / ".venv" / "bin" / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\necho {program} ran\n", encoding="utf-8")
            path.chmod(0o755)
        yield root


def _make(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "unit"],
        cwd=checkout,
        env={"PATH": os.environ["PATH"]},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_used_while_it_is_current(checkout: Path) -> None:
    (checkout / ".venv" / ".ready").touch()
    result = _make(checkout)
    assert result.returncode == 0, result.stderr
    assert "pytest ran" in result.stdout


@pytest.mark.parametrize("fault", ["old", "not executable"])
def test_its_owner_is_named_where_it_is_of_no_use(checkout: Path, fault: str) -> None:
    if fault == "not executable":
        (checkout / ".venv" / ".ready").touch()
        (checkout / ".venv" / "bin" / "python").chmod(0o700)
    result = _make(checkout)
    said, *makes = result.stderr.splitlines()
    assert said.startswith(".venv belongs to root, and this user cannot use or renew it.")
    assert [line[:6] for line in makes] == ["make: "]
    assert "ran" not in result.stdout
