"""``make`` with an environment that another user made, and the locks of environments."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.project_copy import ROOT

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of two users")


@pytest.fixture
def checkout() -> Iterator[Path]:
    """Give a checkout of root's that everybody may read, with an environment of programs."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "build").mkdir()
        (root / ".venv" / "bin").mkdir(parents=True)
        for file in (
            "Makefile",
            "pyproject.toml",
            "build/requirements.txt",
            "build/requirements-dev.txt",
        ):
            shutil.copy(ROOT / file, root / file)
        for program in ("python", "pytest"):
            path = root / ".venv" / "bin" / program
            path.write_text(f"#!/bin/sh\necho {program} ran\n", encoding="utf-8")
            path.chmod(0o755)
        yield root


@pytest.mark.parametrize("fault", ["", "old", "not executable"], ids=["none", "old", "closed"])
def test_it_is_used_while_it_is_current_else_its_owner_is_named(checkout: Path, fault: str) -> None:
    if fault != "old":
        (checkout / ".venv" / ".ready").touch()
        (checkout / ".venv" / ".dev").touch()
    if fault == "not executable":
        (checkout / ".venv" / "bin" / "python").chmod(0o700)
    result = subprocess.run(
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
    assert ("pytest ran" in result.stdout) is (result.returncode == 0) is (fault == "")
    if fault:
        said, end = result.stderr.splitlines()
        assert said.startswith(".venv belongs to root, and this user cannot use or renew it.")
        assert (end[:6], result.stdout) == ("make: ", "")


def test_both_environments_have_the_same_versions() -> None:
    locks = []
    for name in ("requirements.txt", "requirements-dev.txt"):
        text = (ROOT / "build" / name).read_text(encoding="utf-8")
        locks.append({*re.findall(r"^([a-z0-9-]+==\S+)", text, re.MULTILINE)})
    own, dev = locks
    assert {line.partition("==")[0] for line in own} >= {"uv", "pytest", "hatchling"}
    assert own < dev
