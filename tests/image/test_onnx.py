"""Suite `onnx`: a model of this TensorFlow goes through tf2onnx, and onnxruntime predicts the same.

Neither is in the image. They are installed for the test alone, from locks beside this file, in two
environments: tf2onnx beside the image's own packages, onnxruntime in a process without TensorFlow,
because it needs a newer numpy than TensorFlow 1.10 takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from environment import copy_into, install

if TYPE_CHECKING:
    from pathlib import Path

    from container import Container, Ran
    from expectation import Expectation
    from lab import Lab

#: Not among the suites of a build: it is run where it is asked for.
NEEDS = "the Python package index"

pytestmark = pytest.mark.usefixtures("importable")
SECONDS = 180
WAYS = ("model", "saved_model")
SAME_NUMBER = 1e-5  # float32, summed in another order


@pytest.fixture(scope="module")
def environments(
    container: Container, lab: Lab, expect: Expectation, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return where each environment is in the container, by its lock's name."""
    python = ".".join(expect.pins["python"].split(".")[:2])
    found = {}
    for lock in ("onnx-export", "onnx-runtime"):
        folder: Path = tmp_path_factory.mktemp(lock)
        install(lock, folder, python, expect.platform)
        found[lock] = copy_into(container, lab.first, folder)
    return found


@pytest.fixture(scope="module")
def folder(container: Container) -> str:
    """Return where the models are left for the second process."""
    return container.fresh_folder()


@pytest.fixture(scope="module")
def exported(container: Container, environments: dict[str, str], folder: str) -> Ran:
    """Export a model with the image's TensorFlow."""
    return _program(container, environments["onnx-export"], "onnx_export.py", folder)


@pytest.fixture(scope="module")
def ran(container: Container, environments: dict[str, str], folder: str, exported: Ran) -> Ran:
    """Run the exported models; without any, say why."""
    if exported.failed:
        return exported
    return _program(container, environments["onnx-runtime"], "onnx_run.py", folder)


def _program(container: Container, packages: str, name: str, folder: str) -> Ran:
    """Run a program with further packages in front of the image's."""
    program = ("python", container.path_of(name), folder)
    return container.run("env", f"PYTHONPATH={packages}", *program, seconds=SECONDS)


def test_export_is_made_with_the_images_own_packages(exported: Ran, expect: Expectation) -> None:
    """What is put beside the image shadows neither its TensorFlow nor its numpy."""
    found = {name: exported.json[name] for name in ("tensorflow", "numpy")}
    assert found == {"tensorflow": expect.tensorflow, "numpy": expect.packages["numpy"]}


def test_runtime_has_no_tensorflow(ran: Ran) -> None:
    """What onnxruntime predicts it predicts alone."""
    assert ran.json["tensorflow"] is False


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch", ["together", "alone"])
def test_onnxruntime_predicts_what_tensorflow_does(
    exported: Ran, ran: Ran, way: str, batch: str
) -> None:
    """All samples at once, and each alone, give TensorFlow's probabilities."""
    wanted, found = exported.json["predictions"], ran.json[way][batch]
    assert len(wanted) == len(found) == 3
    for expected, got in zip(wanted, found, strict=True):
        assert sum(expected) == pytest.approx(1)
        assert got == pytest.approx(expected, rel=SAME_NUMBER, abs=SAME_NUMBER)
