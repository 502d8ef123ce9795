"""The suites of a checkout: which there are, which run only on demand, and their digests."""

from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.suites.catalog import (
    choose_suites,
    code_digest,
    group_suites,
    read_suites,
    select_required,
    suite_keys,
)

FILES = {
    "test_pins.py": '"""Suite `pins`: every pin is right.\n\nMore."""\n',
    "test_gpu_runs.py": '"""Suite `gpu_runs`: it computes."""\n',
    "test_onnx.py": '"""Suite `onnx`: models."""\nNEEDS: str = "the Python package index"\n',
    "test_bare.py": "def test_x(): pass\n",
    "test_broken.py": "def test_x(:\n",
    "programs/a.py": "",
    "README.md": "",
}
ALL = {"bare", "broken", "gpu_runs", "onnx", "pins"}


def image(**facts: str | None) -> dict[str, str | None]:
    usual = {"tensorflow": "2.2.3", "variant": "cpu", "mpi_flavour": "openmpi"}
    return {"name": "tf-x", **usual, **facts}


def list_suites(folder: Path, **facts: str | None) -> tuple[str, ...]:
    return tuple(suite.name for suite in select_required(read_suites(folder), image(**facts)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "programs").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_suite_on_demand_is_run_only_where_it_is_named(folder: Path) -> None:
    assert list_suites(folder) == ("bare", "broken", "pins")
    assert list_suites(folder, variant="gpu") == ("bare", "broken", "gpu_runs", "pins")
    assert [suite.name for suite in choose_suites(folder, ("onnx",), image())] == ["onnx"]
    assert "onnx" not in [suite.name for suite in choose_suites(folder, (), image())]
    for name in ("nope", "gpu_runs"):
        with pytest.raises(InputError, match=f"{name}.* Available suites: bare, broken, onnx"):
            choose_suites(folder, (name,), image())


def test_a_suite_is_for_images_with_what_it_is_about(folder: Path) -> None:
    (folder / "test_bare.py").write_text("WITH_MPI = True\n")
    (folder / "test_pins.py").write_text('SINCE = "2.10"\n')
    assert list_suites(folder, tensorflow="2.9.3") == ("bare", "broken")
    assert list_suites(folder, tensorflow="2.10.1", mpi_flavour=None) == ("broken", "pins")


def test_long_suites_have_a_process_each_and_the_others_share_the_first(folder: Path) -> None:
    for name, lasts in {"nodes": 14, "running": 9}.items():
        (folder / f"test_{name}.py").write_text(f"LASTS = {lasts}  # seconds\n")
    names = ("bare", "running", "nodes", "pins")
    assert group_suites(folder, names) == [("bare", "pins"), ("nodes",), ("running",)]
    assert group_suites(folder, ("running",)) == [("running",)]


@pytest.mark.parametrize("value", ["1", "x + 'y'", "f'{a}'"])
def test_what_a_suite_needs_is_read_and_never_computed(folder: Path, value: str) -> None:
    (folder / "test_pins.py").write_text(f"a = 1\nNEEDS = {value}\n")
    with pytest.raises(InputError, match=r"test_pins\.py:2: NEEDS"):
        read_suites(folder)


def test_the_suites_are_the_files(project: Project) -> None:
    for suite in read_suites(project.suites):
        text = (project.suites / f"test_{suite.name}.py").read_text(encoding="utf-8")
        assert text.startswith(f'"""Suite `{suite.name}`: '), suite.name
        assert suite.proves.endswith("."), suite.name
        # Else a change of one would be a change of two, and only one would be run again.
        assert "from test_" not in text, suite.name
        assert "import test_" not in text, suite.name
    cpu, gpu = (list_suites(project.suites, variant=variant) for variant in ("cpu", "gpu"))
    assert {*gpu} - {*cpu} == {"gpu_built", "gpu_loadable", "gpu_runs"}
    assert {"horovod", "pins"} <= {*cpu} < {*gpu}
    assert {*cpu} - {*list_suites(project.suites, mpi_flavour=None)} == {"horovod", "nodes"}
    assert {*cpu} - {*list_suites(project.suites, tensorflow="1.10.1")} == {"distribute"}


@pytest.mark.parametrize(
    ("file", "suites"),
    [
        ("test_pins.py", {"pins"}),
        ("test_new.py", {"new"}),
        ("programs/a.py", ALL),
        ("programs/data.bin", ALL),
        ("data.txt", ALL),
        ("README.md", set()),
        (".mypy_cache/3.11/x.json", set()),
        (".test_x.py.swp", set()),
    ],
)
def test_a_verdict_depends_on_the_suite_and_what_suites_share(
    folder: Path, file: str, suites: set[str]
) -> None:
    before, code = suite_keys(read_suites(folder), {}), code_digest(folder)
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    with (folder / file).open("a") as stream:
        stream.write("# more\n")
    after = suite_keys(read_suites(folder), {})
    assert {name for name in after if after[name] != before.get(name)} == suites
    assert (code_digest(folder) != code) is bool(suites)


def test_a_verdict_depends_on_the_expectation(folder: Path) -> None:
    suites = read_suites(folder)
    one, same, other = (
        suite_keys(suites, expected)["pins"]
        for expected in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {})
    )
    assert one == same != other
