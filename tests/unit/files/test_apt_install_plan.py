"""``apt/install``: plans, and when lists are brought; by an apt-get that says what it was asked."""

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
def environment(tmp_path: Path) -> dict[str, str]:
    fake = tmp_path / "bin" / "apt-get"
    fake.parent.mkdir()
    fake.write_text(FAKE)
    fake.chmod(0o755)
    return {"PATH": f"{fake.parent}:{os.environ['PATH']}", "ASKED": str(tmp_path / "asked")}


@pytest.fixture
def asked(tmp_path: Path, project: Project, environment: dict[str, str]) -> list[str]:
    """Plan one package; return what apt-get was asked."""
    subprocess.run(
        ["sh", project.files / "apt" / "install", "--plan", tmp_path / "out", "git=1:2.39.5-*"],
        env=environment,
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


@pytest.mark.parametrize(
    ("between", "updates"), [("-d now", 1), ("-d '11 minutes ago'", 2), ("-d '1 day'", 2)]
)
def test_lists_are_brought_again_after_ten_minutes_or_where_the_clock_was_set_back(
    tmp_path: Path, project: Project, environment: dict[str, str], between: str, updates: int
) -> None:
    """The lists' stamp is in a cache that outlives a build."""
    apart = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody but root mount a file system of their own")
    install = f"sh {project.files}/apt/install git || true"  # the fake brings no package
    stamp = f"touch {between} /var/cache/imgbuild/imgbuild-lists-????????????????"
    command = f"mount -t tmpfs none /var/cache; {install}; {stamp}; {install}"
    subprocess.run([*apart, "bash", "-c", command], env=environment, check=True)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len([line for line in asked if line.endswith(" update")]) == updates
