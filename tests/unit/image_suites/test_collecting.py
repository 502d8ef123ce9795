"""Which checks there are for which image, and that no other skip gets through: pytest really run.

The container is this machine (testinfra's local backend), whose `python` is the one that runs
these tests: Debian has none of this name. The suites are made up.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_helpers import GOOD, GPU, INDEX

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGE = Path(__file__).resolve().parents[2] / "image"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return how to run suites, given by name and text, for an expectation."""
    folder = tmp_path / "image"
    shutil.copytree(IMAGE, folder, ignore=shutil.ignore_patterns("test_*", "__pycache__"))

    def call(
        expect: dict[str, Any], *options: str, **suites: str
    ) -> subprocess.CompletedProcess[str]:
        for name, text in suites.items():
            (folder / f"test_{name}.py").write_text(f"import pytest\n{text}")
        (tmp_path / "expect.json").write_text(json.dumps(expect))
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
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


@pytest.fixture
def made_up_driver(tmp_path: Path) -> Callable[[dict[str, Any]], None]:
    """Return how to replace what the container's driver says, once `run` is there."""

    def call(answer: dict[str, Any]) -> None:
        program = tmp_path / "image" / "programs" / "driver.py"
        program.write_text(f"print({json.dumps(answer)!r})\n")

    return call


PASSES = "def test_it(): pass\n"


def test_an_image_without_cuda_has_no_gpu_suites(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    suites = {"pins": PASSES, "gpu_built": PASSES}
    assert "1 passed" in run(GOOD, **suites).stdout
    assert "2 passed" in run(GPU, **suites).stdout


def test_cuda_has_the_checks_of_where_it_comes_from(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    tests = [
        f"@pytest.mark.cuda_from('{name}')\ndef test_{name}(): assert '{name}' == {{!r}}\n"
        for name in ("apt", "index")
    ]
    for expect, name in ((GPU, "apt"), (INDEX, "index")):
        text = "".join(tests).format(name, name)
        assert "1 passed" in run(expect, gpu_built=text).stdout


def test_a_check_of_what_is_not_pinned_does_not_exist(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    marks = ("miniconda", "git")
    tests = [f"@pytest.mark.pinned('{mark}')\ndef test_{mark}(): pass\n" for mark in marks]
    text = "".join(tests)
    assert "1 passed" in run(GOOD, pins=text).stdout
    conda = {**GOOD, "pins": {**GOOD["pins"], "miniconda": "4.5.11"}}
    assert "2 passed" in run(conda, pins=text).stdout


@pytest.mark.parametrize(
    "text",
    [
        "def test_it(): pytest.skip('not today')",
        "@pytest.mark.skip(reason='slow')\ndef test_it(): pass",
        "@pytest.mark.parametrize('a', [])\ndef test_it(a): pass",
        "@pytest.mark.xfail(reason='known', run=False)\ndef test_it(): pass",
    ],
)
def test_a_skip_for_another_reason_is_a_failure(
    run: Callable[..., subprocess.CompletedProcess[str]], text: str
) -> None:
    result = run(GOOD, pins=text)
    assert result.returncode == 1
    assert "skipped, which no check may be for this reason" in result.stdout


MARKED = """
@pytest.mark.since("2.4")
def test_since(): pass
@pytest.mark.packaged("ptxas-cu11", "ptxas-cu12")
def test_packaged(): pass
def test_any(): pass
"""


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"tensorflow": "2.3.4"}, "1 passed"),
        ({"tensorflow": "2.4.0"}, "2 passed"),
        ({"tensorflow": "2.10.1"}, "2 passed"),
        ({"tensorflow": "2.10.1", "packages": {"ptxas-cu12": "12.2"}}, "3 passed"),
        ({"partial": True, "tensorflow": "2.10.1"}, "2 passed"),
    ],
)
def test_what_an_image_is_too_old_for_or_lacks_is_no_check(
    run: Callable[..., subprocess.CompletedProcess[str]], change: dict[str, Any], outcome: str
) -> None:
    expect = {**GOOD, **change}
    if "partial" in change:
        del expect["packages"]
    assert outcome in run(expect, pins=MARKED).stdout


GPUS = "def test_it(gpus): assert gpus\ndef test_other(gpus): assert gpus"


def test_without_gpus_every_check_is_skipped_with_the_engines_reason(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    result = run(GPU, "--no-gpu=the engine offers none", gpu_runs=GPUS)
    assert "2 skipped" in result.stdout
    assert "no NVIDIA driver: the engine offers none" in result.stdout
    assert result.returncode == 0


FINE: dict[str, Any] = {
    "kernel": "535.104.05",
    "error": None,
    "cuda": 12020,
    "init": 0,
    "devices": [{"name": "Tesla V100", "capability": "7.0"}],
}
A100 = {"name": "NVIDIA A100", "capability": "8.0"}
NO_LIBRARY = "libcuda.so.1: cannot open shared object file"


@pytest.mark.parametrize(
    ("fault", "no_gpu", "reason"),
    [
        ({"init": 100}, None, r"cuInit of libcuda\.so\.1 answers 100 \(no device\)"),
        ({"init": 34, "cuda": None}, None, r"cuInit of libcuda\.so\.1 answers 34 \(a stub\)"),
        ({"error": NO_LIBRARY}, None, NO_LIBRARY),
        ({}, "unsatisfied condition: cuda>=99.0", "unsatisfied condition: cuda>=99.0"),
        ({"devices": []}, None, "it has no device"),
    ],
)
def test_an_image_that_does_not_see_the_gpus_that_the_engine_offers_fails(
    run: Callable[..., subprocess.CompletedProcess[str]],
    made_up_driver: Callable[[dict[str, Any]], None],
    fault: dict[str, Any],
    no_gpu: str | None,
    reason: str,
) -> None:
    made_up_driver({**FINE, **fault})
    options = [f"--no-gpu={no_gpu}"] if no_gpu else []
    assert "2 skipped" in run(GPU, *options, gpu_runs=GPUS).stdout
    result = run(GPU, *options, "--gpus-offered", gpu_runs=GPUS)
    assert result.returncode == 1
    assert "2 errors" in result.stdout
    assert re.search(f"the engine offers GPUs, the image sees none: .*{reason}", result.stdout)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"kernel": "390.48"}, "driver too old (found 390.48, needs 418.39)"),
        ({"devices": [A100]}, "GPU too new for CUDA 10 (NVIDIA A100"),
    ],
)
def test_a_machine_of_the_wrong_age_is_no_fault_of_the_image(
    run: Callable[..., subprocess.CompletedProcess[str]],
    made_up_driver: Callable[[dict[str, Any]], None],
    found: dict[str, Any],
    reason: str,
) -> None:
    made_up_driver({**FINE, **found})
    result = run(GPU, "--gpus-offered", "--no-gpu=refused", gpu_runs=GPUS)
    if "devices" in found:  # the engine gave it
        result = run(GPU, "--gpus-offered", gpu_runs=GPUS)
    assert "2 skipped" in result.stdout
    assert reason in result.stdout


def test_a_gpu_that_is_too_new_does_not_skip_the_others(
    run: Callable[..., subprocess.CompletedProcess[str]],
    made_up_driver: Callable[[dict[str, Any]], None],
    tmp_path: Path,
) -> None:
    made_up_driver({**FINE, "devices": [A100, *FINE["devices"], A100]})
    suite = (IMAGE / "test_gpu_runs.py").read_text()
    used = "def test_used(gpus): assert gpus == [1]\n"
    (tmp_path / "image" / "test_gpu_runs.py").write_text(f"{suite}\n\n{used}")
    result = run(GPU, "--gpus-offered", "-k", "left_out or used")
    assert "1 passed, 1 skipped" in result.stdout
    assert "GPU too new for CUDA 10 (device 0 of 3: NVIDIA A100" in result.stdout


def test_no_other_suite_may_be_skipped_for_want_of_a_gpu(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert run(GPU, "--no-gpu=none", gpu_loadable=GPUS).returncode == 1


IMPORTS = "pytestmark = pytest.mark.usefixtures('importable')\n" + PASSES


@pytest.mark.parametrize(
    ("expect", "outcome"),
    [
        ({**GPU, "tensorflow": "1.13.1"}, "1 skipped"),
        ({**GPU, "tensorflow": "1.14.0"}, "1 passed"),
        ({**GOOD, "tensorflow": "1.13.1"}, "1 passed"),
    ],
)
def test_old_tensorflow_for_gpus_is_not_imported_without_a_driver(
    run: Callable[..., subprocess.CompletedProcess[str]], expect: dict[str, Any], outcome: str
) -> None:
    result = run(expect, tensorflow=IMPORTS)
    assert outcome in result.stdout
    # Where GPUs are offered the driver ought to be there: the import itself may say why not.
    assert "1 passed" in run(expect, "--gpus-offered", tensorflow=IMPORTS).stdout
    if "skipped" in outcome:
        assert "TensorFlow 1.13 for GPUs cannot be imported without a driver" in result.stdout


def test_each_library_that_is_opened_has_a_check(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    result = run(GPU, "-vv", gpu_loadable="def test_it(soname): pass")
    assert "9 passed" in result.stdout
    assert "libcudart.so.10.1" in result.stdout
