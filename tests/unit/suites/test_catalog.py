"""The suites of a checkout: which there are, which run only on demand, and their digests."""

from pathlib import Path

import pytest

from imgbuild.errors import InputError
from imgbuild.project import Project
from imgbuild.suites.catalog import (
    choose_suites,
    code_digest,
    read_suites,
    required,
    side_by_side,
    suite_keys,
)

TEXTS = {
    "pins": '"""Suite `pins`: every pin is right.\n\nMore."""\n',
    "gpu_runs": '"""Suite `gpu_runs`: it computes."""\n',
    "onnx": '"""Suite `onnx`: models travel."""\nNEEDS: str = "the Python package index"\n',
    "bare": "def test_x(): pass\n",
    "broken": "def test_x(:\n",
}


def image(**facts: str | None) -> dict[str, str | None]:
    usual = {"tensorflow": "2.2.3", "variant": "cpu", "mpi_flavour": "openmpi"}
    return {"name": "tf-x", **usual, **facts}


def list_suites(folder: Path, **facts: str | None) -> tuple[str, ...]:
    return tuple(suite.name for suite in required(read_suites(folder), image(**facts)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    return tmp_path


def test_a_suite_on_demand_is_run_only_where_it_is_named(folder: Path) -> None:
    assert list_suites(folder) == ("bare", "broken", "pins")
    assert list_suites(folder, variant="gpu") == ("bare", "broken", "gpu_runs", "pins")
    assert [suite.name for suite in choose_suites(folder, ("onnx",), image())] == ["onnx"]
    assert "onnx" not in [suite.name for suite in choose_suites(folder, (), None)]
    for name in ("nope", "gpu_runs"):
        with pytest.raises(InputError, match=f"{name}.* There are: bare, broken, onnx, pins"):
            choose_suites(folder, (name,), image())


def test_a_suite_is_for_images_with_what_it_is_about(folder: Path) -> None:
    (folder / "test_bare.py").write_text("WITH_MPI = True\n")
    (folder / "test_pins.py").write_text('SINCE = "2.10"\n')
    assert list_suites(folder, tensorflow="2.9.3") == ("bare", "broken")
    assert list_suites(folder, tensorflow="2.10.1", mpi_flavour=None) == ("broken", "pins")
    with pytest.raises(InputError, match=r"No suite of tf-x is called bare\."):
        choose_suites(folder, ("bare",), image(mpi_flavour=None))
    external = {"name": "me/mine", "tensorflow": "2.2", "variant": "cpu"}  # its MPI is not known
    assert [suite.name for suite in choose_suites(folder, ("bare",), external)] == ["bare"]


def test_what_does_not_say_how_long_it_lasts_shares_a_process_which_comes_first(
    folder: Path,
) -> None:
    for name, lasts in {"nodes": 14, "running": 9, "horovod": 7}.items():
        (folder / f"test_{name}.py").write_text(f"LASTS = {lasts}  # seconds\n")
    names = ("bare", "horovod", "nodes", "pins", "running")
    assert side_by_side(folder, names) == [("bare", "pins"), ("nodes",), ("running",), ("horovod",)]
    assert side_by_side(folder, ("running",)) == [("running",)]


@pytest.mark.parametrize("value", ["1", "x + 'y'", "f'{a}'"])
def test_what_a_suite_needs_is_read_and_never_computed(folder: Path, value: str) -> None:
    (folder / "test_pins.py").write_text(f"a = 1\nNEEDS = {value}\n")
    with pytest.raises(InputError, match=r"test_pins\.py:2: NEEDS must be a text in quotes"):
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


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    made = tmp_path / "image"
    (made / "programs").mkdir(parents=True)
    for name in ("test_pins.py", "test_horovod.py", "lab.py", "programs/a.py", "README.md"):
        (made / name).write_text('"""Suite `x`: it proves."""\n')
    return made


@pytest.mark.parametrize(
    ("file", "suites"),
    [
        ("test_pins.py", {"pins"}),
        ("lab.py", {"pins", "horovod"}),
        ("programs/a.py", {"pins", "horovod"}),
        ("programs/new.sh", {"pins", "horovod"}),
        ("data.txt", {"pins", "horovod"}),
        ("programs/data.bin", {"pins", "horovod"}),
        ("test_new.py", {"new"}),
        ("README.md", set()),
    ],
)
def test_a_verdict_depends_on_the_suite_and_what_suites_share(
    shared: Path, file: str, suites: set[str]
) -> None:
    before, code = suite_keys(read_suites(shared), {}), code_digest(shared)
    with (shared / file).open("a") as stream:
        stream.write("# more\n")
    after = suite_keys(read_suites(shared), {})
    assert {name for name in after if after[name] != before.get(name)} == suites
    assert (code_digest(shared) != code) is bool(suites)


def test_a_verdict_depends_on_the_expectation(shared: Path) -> None:
    suites = read_suites(shared)
    expectations: tuple[dict[str, int], ...] = ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {})
    one, same, other = (suite_keys(suites, expected)["pins"] for expected in expectations)
    assert one == same != other
