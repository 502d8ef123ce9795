"""The cells of a notebook, run by a kernel that stands in for ipykernel."""

import json
from pathlib import Path

import pytest

from imgbuild.adopt.program_container import WORK
from imgbuild.adopt.run_notebook import CELL_FILE
from support.program_runner import Ran, Runner

FAKES = Path(__file__).parents[2] / "support" / "fake_kernel"


def run(folder: Path, *sources: str) -> Ran:
    cells = [{"cell_type": "markdown", "source": "die"}]
    cells += [{"cell_type": "code", "source": source} for source in sources]
    runner = Runner(folder).write({"notebooks/Train.ipynb": json.dumps({"cells": cells})})
    return runner.run(program="notebooks/Train.ipynb", folder="notebooks", path=str(FAKES))


def test_cells_run_in_order_in_one_namespace(tmp_path: Path) -> None:
    ran = run(tmp_path, "import os\nx = 1", "print(x + 1)", "print(os.path.basename(os.getcwd()))")
    assert (ran.code, ran.output) == (0, "2\nnotebooks\n")
    assert "imports" in ran.events


def test_cells_without_imports_report_none(tmp_path: Path) -> None:
    assert "imports" not in run(tmp_path, "x = 'import os'", "print(x)").events


def test_error_is_told_with_its_cell(tmp_path: Path) -> None:
    text = "def load(path):\n    return open(path)\n"
    ran = run(tmp_path, text, "load('none.csv')", "print('not reached')")
    assert (ran.code, ran.output) == (1, "")
    error = ran.events["error"]
    assert error["classes"][:2] == ["FileNotFoundError", "OSError"]
    assert (error["filename"], error["errno"]) == ("none.csv", 2)
    path = str(tmp_path / "code" / "notebooks" / "Train.ipynb")
    assert [frame[:2] for frame in error["frames"]] == [[path, 2], [path, 2]]
    assert "\x1b" not in ran.errors
    assert "FileNotFoundError" in ran.errors


def test_error_without_a_frame_of_a_cell_has_a_place(tmp_path: Path) -> None:
    (frame,) = run(tmp_path, "x = 1", "def f(:").events["error"]["frames"]
    assert frame[0].endswith("Train.ipynb")
    assert frame[1] == 2


def test_kernel_that_dies_ends_the_run(tmp_path: Path) -> None:
    ran = run(tmp_path, "x = 1", "die", "print('not reached')")
    assert (ran.code, ran.output) == (1, "")
    assert ran.events["error"]["message"] == "the kernel died in cell 2"


@pytest.mark.parametrize(
    ("path", "is_cell"),
    [
        ("<ipython-input-3-8d1f>", True),
        (f"{WORK}/notebooks/<ipython-input-3-8d1f>", True),
        ("/imgbuild-adopt/temporary/ipykernel_33/2716353906.py", True),
        ("/opt/python/site-packages/ipykernel/ipkernel.py", False),
        (f"{WORK}/model.py", False),
    ],
)
def test_files_of_cells_are_known(path: str, is_cell: bool) -> None:
    assert bool(CELL_FILE.search(path)) is is_cell
