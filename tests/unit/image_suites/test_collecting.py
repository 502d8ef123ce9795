"""Which checks there are for which image, and that no other skip gets through: pytest really run.

The container is this machine (testinfra's local backend), whose `python` is the one that runs
these tests: Debian has none of this name. The suites are made up.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.expectations import ALONE, DRIVER, GOOD, GPU, INDEX
from support.project_copy import PROGRAMS, ROOT

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return how to run suites, given by name and text, for an expectation.

    The container's driver may be one that answers as given.
    """
    folder = tmp_path / "image"
    shutil.copytree(PROGRAMS.parent, folder, ignore=shutil.ignore_patterns("test_*", "__pycache__"))

    def call(
        expect: dict[str, Any], *options: str, driver: dict[str, Any] | None = None, **suites: str
    ) -> subprocess.CompletedProcess[str]:
        for name, text in suites.items():
            (folder / f"test_{name}.py").write_text(f"import pytest\n{text}")
        if driver is not None:
            (folder / "programs" / "driver.py").write_text(f"print({json.dumps(driver)!r})\n")
        (tmp_path / "expect.json").write_text(json.dumps(expect))
        command = [sys.executable, "-m", "pytest", "-q", "-rsp", "-p", "no:cacheprovider"]
        command += ["-p", "testinfra.plugin", "--rootdir", str(tmp_path), "--hosts=local://"]
        command += [f"--expect={tmp_path}/expect.json", *options, str(folder)]
        # Plugins that no suite needs take longer to import than a suite here takes.
        quick = {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, **quick, "PATH": path}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
        )

    return call


MARKED = """
@pytest.mark.since("2.4")
def test_since(): pass
@pytest.mark.packaged("ptxas-cu11", "ptxas-cu12")
def test_packaged(): pass
@pytest.mark.pinned("miniconda")
def test_pinned(): pass
@pytest.mark.cuda_from("apt")
def test_apt(): pass
@pytest.mark.cuda_from("index")
def test_index(): pass
@pytest.mark.in_version("cloudpickle", "2.2.1")
def test_pickled(): pass
@pytest.mark.with_mpi
def test_ranks(): pass
def test_any(): pass
"""
MORE = {
    "packages": {"ptxas-cu12": "12.2", "cloudpickle": "2.2.1"},
    "pins": {**GOOD["pins"], "miniconda": "4.5.11"},
}
OLDER = {"packages": {"cloudpickle": "1.3.0"}}


@pytest.mark.parametrize(
    ("expect", "checks"),
    [
        ({**GOOD, "tensorflow": "2.3.4"}, {"any", "ranks", "mpi"}),
        (
            {**GOOD, **MORE, "tensorflow": "2.4.0"},
            {"any", "ranks", "mpi", "since", "new", "packaged", "pinned", "pickled"},
        ),
        ({**GOOD, **OLDER, "tensorflow": "2.3.4"}, {"any", "ranks", "mpi"}),
        (GPU, {"any", "ranks", "mpi", "apt", "gpu"}),
        (INDEX, {"any", "ranks", "mpi", "index", "gpu"}),
        ({**ALONE, "tensorflow": "2.21.0"}, {"any", "since", "new"}),
    ],
    ids=["old", "more", "older", "apt", "index", "no MPI"],
)
def test_there_are_checks_of_what_an_image_knows_pins_and_has(
    run: Run, expect: dict[str, Any], checks: set[str]
) -> None:
    suites = {"gpu_built": "def test_gpu(): pass", "new": 'SINCE = "2.4"\ndef test_new(): pass'}
    said = run(expect, pins=MARKED, nodes="WITH_MPI = True\ndef test_mpi(): pass", **suites).stdout
    assert {*re.findall(r"^PASSED .*::test_(\w+)", said, re.MULTILINE)} == checks, said


SKIPS = """
def test_today(): pytest.skip('not today')
@pytest.mark.skip(reason='slow')
def test_slow(): pass
@pytest.mark.parametrize('a', [])
def test_none(a): pass
@pytest.mark.xfail(reason='known', run=False)
def test_known(): pass
"""


def test_a_skip_for_another_reason_is_a_failure(run: Run) -> None:
    result = run(GOOD, pins=SKIPS)
    assert result.returncode == 1
    assert "passed" not in result.stdout.splitlines()[-1]
    assert result.stdout.count("\nskipped, which no check may be for this reason") == 4


GPUS = "def test_it(gpus): assert gpus\ndef test_other(gpus): assert gpus"


@pytest.mark.parametrize(
    ("fault", "options", "reason", "offered"),
    [
        ({"init": 100}, [], "no NVIDIA driver: .*answers 100", "2 errors"),
        ({}, ["--no-gpu=unsatisfied: cuda>=99"], "no NVIDIA driver: unsatisfied: ", "2 errors"),
        ({"kernel": "390.48"}, ["--no-gpu=refused"], "driver too old", "2 skipped"),
    ],
    ids=["no device", "refused", "wrong age"],
)
def test_an_image_that_does_not_see_the_gpus_that_the_engine_offers_fails(
    run: Run, fault: dict[str, Any], options: list[str], reason: str, offered: str
) -> None:
    """A machine of the wrong age is no fault of the image."""
    driver = {**DRIVER, **fault}
    skipped = run(GPU, *options, driver=driver, gpu_runs=GPUS)
    assert (skipped.returncode, "2 skipped" in skipped.stdout) == (0, True)
    assert re.search(reason, skipped.stdout)
    said = run(GPU, *options, "--gpus-offered", driver=driver, gpu_runs=GPUS).stdout
    assert offered in said
    assert ("the engine offers GPUs, the image sees none: " in said) is (offered == "2 errors")


@pytest.mark.parametrize(("tensorflow", "outcome"), [("1.13.1", "skipped"), ("1.14.0", "passed")])
def test_old_tensorflow_for_gpus_is_not_imported_without_a_driver(
    run: Run, tensorflow: str, outcome: str
) -> None:
    expect = {**GPU, "tensorflow": tensorflow}
    imports = "pytestmark = pytest.mark.usefixtures('importable')\ndef test_it(): pass"
    assert f"1 {outcome}" in run(expect, tensorflow=imports).stdout
    # Where GPUs are offered the driver ought to be there: the import itself may say why not.
    assert "1 passed" in run(expect, "--gpus-offered", tensorflow=imports).stdout


HANGS = """
import subprocess

def test_command(): subprocess.run(["sleep", "30"], timeout=0.1)
def test_wrong(): assert 1 == 2
"""


def test_command_on_the_host_can_run_out_of_time(run: Run, tmp_path: Path) -> None:
    """A docker client that waits too long, for example."""
    run(GOOD, f"--junitxml={tmp_path}/junit.xml", pins=HANGS)
    found = (tmp_path / "junit.xml").read_text()
    assert "ran out of time: sleep 30 did not end within 0.1 s" in found
    assert found.count('message="ran out of time') == 1


SLOW = """
from limits import allowed

def test_limit(container):
    assert container.run("sleep", "1.5", seconds=1).failed == (allowed(1) == 1)
    program = "import patience; print(patience.allowed(1))"
    path = f"PYTHONPATH={container.programs}"
    told = container.run("env", path, "python3", "-c", program, seconds=9)
    assert told.output.strip() == str(allowed(1))
"""


@pytest.mark.parametrize(("option", "limit"), [((), 1), (("--emulated",), 10)])
def test_limits_grow_where_the_processor_is_emulated(
    run: Run, option: tuple[str, ...], limit: int
) -> None:
    """Those of every command in the container, and those in the programs that are copied there."""
    text = f"{SLOW}    assert container.run('sleep', '0', seconds=1).seconds == {limit}\n"
    ran = run(GOOD, *option, pins=text)
    assert "1 passed" in ran.stdout, ran.stdout


def test_checks_of_one_version_are_made_in_every_image() -> None:
    """A new pin would silently leave them out."""
    text = (PROGRAMS.parent / "test_frameworks.py").read_text()
    ((name, version),) = re.findall(r'in_version\("(\S+)", "(\S+)"\)', text)
    locks = [path.read_text() for path in (ROOT / "images" / "locks").glob("tf-*.txt")]
    assert locks
    for lock in locks:
        assert {*re.findall(rf"^{name}==(\S+)", lock, re.MULTILINE)} <= {version}
