"""Locks of images: a second build of one image is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.build.context import image_locks
from imgbuild.errors import MachineError


def test_a_second_build_is_refused_and_keeps_no_other_lock(tmp_path: Path) -> None:
    with image_locks(["tf-2.2"], None, tmp_path):
        message = rf"tf-2\.2 is being built, .*process {os.getpid()}"
        with (
            pytest.raises(MachineError, match=message),
            image_locks(["tf-1.10", "tf-2.2"], None, tmp_path),
        ):
            pass
        with (
            image_locks(["tf-1.10"], None, tmp_path),
            image_locks(["tf-2.2"], "tcp://elsewhere:2375", tmp_path),
        ):
            pass


def test_a_killed_build_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import os, pathlib\nfrom imgbuild.build.context import image_locks\n"
        f"with image_locks(['tf-2.2'], None, pathlib.Path({str(tmp_path)!r})):\n"
        "    os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    with image_locks(["tf-2.2"], None, tmp_path):
        pass
