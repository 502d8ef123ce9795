"""``apt/install``: when lists are brought, by an apt-get that says what it was asked."""

import os
import subprocess
from pathlib import Path

import pytest

from imgbuild.core.project import Project


@pytest.mark.parametrize(
    ("between", "updates"), [("-d now", 1), ("-d '11 minutes ago'", 2), ("-d '1 day'", 2)]
)
def test_lists_are_brought_again_after_ten_minutes_or_where_the_clock_was_set_back(
    tmp_path: Path, project: Project, between: str, updates: int
) -> None:
    """The lists' stamp is in a cache that outlives a build."""
    apart = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody but root mount a file system of their own")
    fake = tmp_path / "apt-get"
    fake.write_text('#!/bin/sh\necho "$*" >> "$ASKED"\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ASKED": str(tmp_path / "asked")}
    install = f"sh {project.files}/apt/install git"  # the fake brings no package
    stamp = f"touch {between} /var/cache/imgbuild/imgbuild-lists-????????????????"
    # The script empties folders of an image and makes links; it gets its own folders here.
    own = "for folder in /var /etc/ssh /usr/lib/git-core; do "
    own += "[ ! -d $folder ] || mount -t tmpfs none $folder; done"
    command = f"set -e; {own}; {install}; {stamp}; {install}"
    subprocess.run([*apart, "bash", "-c", command], env=environment, check=True)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len([line for line in asked if line.endswith(" update")]) == updates
