"""Suites without an engine: a chroot of an image's files gives the verdicts that Docker gives."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.checkout import ROOT, Bases, Checkout

IMAGE, SUITES = "tf-2.2-cpu-debian", ("horovod", "tensorflow")
GPU = ROOT / "tests" / "gpu"


def _run(bundle: Path, *suites: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and what was found; the bundle alone is used."""
    report = bundle / "report"
    command = [sys.executable, str(bundle / "chroot_run.py"), *suites, "--report", str(report)]
    done = subprocess.run(command, cwd="/", check=False)
    found: list[dict[str, Any]] = json.loads((report / "gpu.json").read_text())["reports"]
    return done.returncode, found[0]["suites"]


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Path]:
    """Give a folder that does not outlast the test: it holds a whole image."""
    yield tmp_path / "bundle"
    shutil.rmtree(tmp_path / "bundle", ignore_errors=True)


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="a chroot needs root")
def test_suites_say_the_same_in_a_chroot(base: Bases, checkout: Checkout, bundle: Path) -> None:
    base(IMAGE)
    made = [sys.executable, str(GPU / "bundle.py"), IMAGE, str(bundle)]
    subprocess.run(made, cwd=checkout.root, check=True)
    code, suites = _run(bundle, *SUITES)
    options = [word for suite in SUITES for word in ("--suite", suite)]
    (report,) = checkout.json("test", IMAGE, *options, "--refresh")
    seen = [(one["suite"], one["verdict"], one["passed"]) for one in suites]
    assert seen == [(one["suite"], one["verdict"], one["passed"]) for one in report["suites"]]
    assert code == 0
    mounted = Path("/proc/self/mounts").read_text()
    assert str(bundle) not in mounted
    (library,) = bundle.glob("rootfs/opt/python/lib/python3*/site-packages/horovod")
    shutil.rmtree(library)
    code, (horovod,) = _run(bundle, "horovod")
    assert (code, horovod["verdict"]) == (1, "failed")
    assert "No module named 'horovod'" in horovod["failures"][0]["message"]
