"""``apt/install --plan``: what is written down, by an apt-get that only says what it was asked."""

import os
import subprocess
from pathlib import Path

import pytest

from imgbuild.project import Project

FAKE = r"""#!/bin/sh
echo "$*" >> "$ASKED"
lists=$(printf '%s\n' "$@" | sed -n 's/^Dir::State::Lists=//p')
case " $* " in
    *" update "*) echo signed > "$lists/archive_InRelease"; echo x > "$lists/lock" ;;
    *" --print-uris "*)
        echo "Reading package lists..."
        echo "'http://x/git.deb' git.deb 3 SHA256:0"
        ;;
esac
"""


@pytest.fixture
def asked(tmp_path: Path, project: Project) -> list[str]:
    """Plan one package; return what apt-get was asked."""
    fake = tmp_path / "bin" / "apt-get"
    fake.parent.mkdir()
    fake.write_text(FAKE)
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", project.files / "apt" / "install", "--plan", tmp_path / "out", "git=1:2.39.5-*"],
        env={"PATH": path, "ASKED": str(tmp_path / "asked")},
        check=True,
        capture_output=True,
    )
    return (tmp_path / "asked").read_text().splitlines()


def test_a_plan_installs_nothing_and_writes_down_packages_and_lists(
    asked: list[str], tmp_path: Path
) -> None:
    """A package that another build left in apt's cache would be missing from the plan."""
    update, plan = asked
    assert " --no-install-recommends -o Acquire::ForceHash=sha256 --print-uris " in plan
    assert plan.endswith(" git=1:2.39.5-*")
    for line in (update, plan):
        assert "Dir::State::Lists=/tmp/apt-install." in line
        assert "Dir::Cache::Archives=/tmp/apt-install." in line
    out = tmp_path / "out"
    assert (out / "uris").read_text() == "'http://x/git.deb' git.deb 3 SHA256:0\n"
    assert [path.name for path in (out / "lists").iterdir()] == ["archive_InRelease"]
    assert (out / "upstreams").read_text() == ""
