"""The cells of a notebook, run by a kernel that stands in for ipykernel."""

import json
from pathlib import Path

import pytest

from imgbuild.adopt.failures import judge_failure, read_failure
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


def test_cells_without_imports_have_done_them(tmp_path: Path) -> None:
    assert "imports" in run(tmp_path, "1 / 0", "print(x)").events


def test_output_ends_the_imports(tmp_path: Path) -> None:
    assert "imports" in run(tmp_path, "import os\nprint(1)\n1 / 0").events


def test_imports_are_done_after_their_cell(tmp_path: Path) -> None:
    assert "imports" not in run(tmp_path, "x = 1", "import os\n1 / 0").events
    assert "imports" in run(tmp_path, "import os", "1 / 0").events


@pytest.mark.parametrize("end", ["import sys\nsys.exit()", "raise SystemExit(0)", "exit"])
def test_notebook_that_ends_itself_has_finished(tmp_path: Path, end: str) -> None:
    ran = run(tmp_path, "print('first')", end, "print('not reached')")
    assert (ran.code, ran.output) == (0, "first\n")
    assert "error" not in ran.events


@pytest.mark.parametrize("text", ["'no data'", "ValueError('no data')"])
def test_notebook_that_ends_with_a_text_fails(tmp_path: Path, text: str) -> None:
    ran = run(tmp_path, f"raise SystemExit({text})")
    assert ran.code == 1
    assert ran.events["error"]["code"] == "no data"


def test_setup_knows_the_magic_of_colab(tmp_path: Path) -> None:
    ran = run(tmp_path, "print(MAGICS)")
    assert ran.output == "['tensorflow_version']\n"


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


@pytest.mark.parametrize(("cell", "reason"), [("die", "crash"), ("die -9", "memory")])
def test_kernel_that_dies_ends_the_run(tmp_path: Path, cell: str, reason: str) -> None:
    ran = run(tmp_path, "print('Epoch 1')", cell, "print('not reached')")
    assert (ran.code, ran.output) == (1, "Epoch 1\n")
    error = ran.events["error"]
    assert error["message"] == "the kernel died in cell 2"
    assert error["frames"][0][1] == 2
    assert "the kernel died in cell 2" in ran.errors
    start = judge_failure(read_failure(error))
    assert (start.outcome, start.reason) == ("fails", reason)


def test_dropped_output_does_not_hang(tmp_path: Path) -> None:
    ran = run(tmp_path, "drop", "print('next')")
    assert (ran.code, ran.output) == (0, "next\n")


def test_odd_answer_of_a_kernel_is_a_failure(tmp_path: Path) -> None:
    ran = run(tmp_path, "ODD.append(1)\n1 / 0")
    assert ran.code == 1
    assert ran.events["error"]["message"] == "cell 1 failed"


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
