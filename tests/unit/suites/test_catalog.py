"""Which suites there are, and which of them run only where they are named."""

import json
from pathlib import Path

import pytest

from imgbuild.cli.test_tables import suite_json, suite_lines
from imgbuild.errors import InputError
from imgbuild.project import Project
from imgbuild.suites.code import choose_suites, list_suites, read_suites

TEXTS = {
    "pins": '"""Suite `pins`: every pin is right.\n\nMore."""\n',
    "gpu_runs": '"""Suite `gpu_runs`: it computes."""\n',
    "onnx": '"""Suite `onnx`: models travel."""\nNEEDS: str = "the Python package index"\n',
    "bare": "def test_x(): pass\n",
    "broken": "def test_x(:\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    return tmp_path


def test_a_suite_on_demand_is_run_only_where_it_is_named(folder: Path) -> None:
    assert list_suites(folder, "cpu") == ("bare", "broken", "pins")
    assert list_suites(folder, "gpu") == ("bare", "broken", "gpu_runs", "pins")
    assert [suite.name for suite in choose_suites(folder, ("onnx",), "cpu")] == ["onnx"]
    with pytest.raises(InputError, match=r"No suite nope\. There are: bare, broken, onnx, pins\."):
        choose_suites(folder, ("nope",), "cpu")


def test_the_list_says_what_each_suite_proves_needs_and_is_for(folder: Path) -> None:
    lines = [line.split("  ") for line in suite_lines(read_suites(folder)).splitlines()]
    rows = [[cell.strip() for cell in line if cell] for line in lines]
    assert rows[0] == ["suite", "runs", "images", "needs", "proves"]
    assert ["pins", "always", "all", "-", "every pin is right."] in rows
    assert ["gpu_runs", "always", "gpu", "a GPU", "it computes."] in rows
    assert ["onnx", "on demand", "all", "the Python package index", "models travel."] in rows
    (onnx,) = [one for one in json.loads(suite_json(read_suites(folder))) if one["on_demand"]]
    assert onnx == {
        "suite": "onnx",
        "proves": "models travel.",
        "variants": ["cpu", "gpu"],
        "needs": "the Python package index",
        "on_demand": True,
    }


@pytest.mark.parametrize("value", ["1", "x + 'y'", "['a']", "f'{a}'"])
def test_what_a_suite_needs_is_read_and_never_computed(folder: Path, value: str) -> None:
    (folder / "test_pins.py").write_text(f"a = 1\nNEEDS = {value}\n")
    with pytest.raises(InputError, match=r"test_pins\.py:2: NEEDS must be a text in quotes"):
        read_suites(folder)


def test_every_suite_says_in_one_line_what_it_proves(project: Project) -> None:
    for suite in read_suites(project.suites):
        text = (project.suites / f"test_{suite.name}.py").read_text(encoding="utf-8")
        assert text.startswith(f'"""Suite `{suite.name}`: '), suite.name
        assert suite.proves.endswith("."), suite.name
