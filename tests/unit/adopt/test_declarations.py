"""Files that ask for packages: setup.py, setup.cfg, pyproject.toml, Pipfile, conda's."""

import time
from collections.abc import Callable

import pytest

from imgbuild.adopt.declarations import (
    Groups,
    read_conda_list,
    read_conda_text,
    read_pipfile,
    read_pyproject,
    read_setup_cfg,
    read_setup_py,
)

SETUP = """\
import os
from setuptools import setup

os.system("touch /tmp/never")
VERSION = "1.0"
BASE = ["numpy>=1.14", "six"]
BASE += ["scipy"]
BASE.append("tqdm")
extras = {"gpu": ["tensorflow-gpu>=1.4"]}
setup(
    name="thing",
    python_requires=">=3.5",
    install_requires=BASE + ["tensorflow==1.8"],
    extras_require=extras,
)
"""


def test_setup_py_joins_constant_lists() -> None:
    assert read_setup_py(SETUP) == {
        "": [
            (6, "numpy>=1.14"),
            (6, "six"),
            (7, "scipy"),
            (8, "tqdm"),
            (13, "tensorflow==1.8"),
            (12, "python>=3.5"),
        ],
        "gpu": [(9, "tensorflow-gpu>=1.4")],
    }


def test_setup_py_reads_alternatives() -> None:
    text = 'A = []\nA.extend(["a"])\nsetup(install_requires=A if A else ["b"])\n'
    assert read_setup_py(text)[""] == [(2, "a"), (3, "b")]


def test_setup_py_reads_keyword_mappings() -> None:
    text = 'import setuptools\nargs = dict(install_requires=["a", "b"])\nsetuptools.setup(**args)\n'
    assert read_setup_py(text)[""] == [(2, "a"), (2, "b")]


def test_setup_py_ignores_computed_lists() -> None:
    text = "setup(install_requires=open('requirements.txt').read().splitlines())\n"
    assert read_setup_py(text)[""] == []


def test_setup_py_of_python_2_is_searched() -> None:
    text = 'print "hello"\nsetup(\n  install_requires=[\n    "tensorflow==1.2",\n  ],\n)\n'
    assert read_setup_py(text) == {"": [(4, "tensorflow==1.2")]}


def test_setup_cfg_reads_options_and_extras() -> None:
    text = (
        "[options]\npython_requires = >=3.6\ninstall_requires =\n    numpy\n"
        "    tensorflow>=2.1\n[options.extras_require]\ntest =\n    pytest\n"
    )
    assert read_setup_cfg(text) == {
        "": [(4, "numpy"), (5, "tensorflow>=2.1"), (2, "python>=3.6")],
        "test": [(8, "pytest")],
    }


def test_pyproject_reads_standard_tables() -> None:
    text = (
        '[project]\nname = "x"\nrequires-python = ">=3.9"\ndependencies = [\n'
        "  \"tensorflow>=2.5,<2.14; python_version>='3.11'\",\n]\n"
        '[project.optional-dependencies]\ngpu = ["nvidia-ml-py"]\n'
    )
    assert read_pyproject(text) == {
        "": [(5, "tensorflow>=2.5,<2.14; python_version>='3.11'"), (3, "python>=3.9")],
        "gpu": [(8, "nvidia-ml-py")],
    }


def test_pyproject_converts_versions_of_poetry() -> None:
    text = (
        '[tool.poetry.dependencies]\npython = "^3.6"\ntensorflow = "^2.3"\nnumpy = "*"\n'
        'scipy = "~1.4.1"\npandas = {version = "1.0.3", optional = true}\n'
        'keras = {version = ">=2.3", python = "<3.8"}\nown = {git = "https://example.org/own"}\n'
        '[tool.poetry.group.dev.dependencies]\npytest = "5.*"\n'
    )
    assert read_pyproject(text) == {
        "": [
            (2, "python>=3.6,<4"),
            (3, "tensorflow>=2.3,<3"),
            (4, "numpy"),
            (5, "scipy>=1.4.1,<1.5"),
            (6, "pandas==1.0.3"),
            (7, "keras>=2.3 ; python_version < '3.8'"),
            (8, "own @ https://example.org/own"),
        ],
        "dev": [(10, "pytest==5.*")],
    }


@pytest.mark.parametrize(
    ("value", "requirement"),
    [
        ('"^0.3"', "a>=0.3,<0.4"),
        ('"^0"', "a>=0,<1"),
        ('"~1"', "a>=1,<2"),
        ('"^1 | ^2"', "a>=1,<2"),
        ('{version = "1", markers = "os_name == \'nt\'"}', "a==1 ; os_name == 'nt'"),
        ('{version = "1", python = "<3|>4"}', "a==1"),
        ('{path = "lib/a"}', "a @ lib/a"),
        ('{url = "https://example.invalid/a.whl"}', "a @ https://example.invalid/a.whl"),
    ],
)
def test_pyproject_converts_a_value_of_poetry(value: str, requirement: str) -> None:
    text = f"[tool.poetry.dependencies]\na = {value}\n"
    assert read_pyproject(text) == {"": [(2, requirement)]}


def test_pyproject_reads_flit() -> None:
    assert read_pyproject('[tool.flit.metadata]\nrequires = ["a>=1"]\n') == {"": [(2, "a>=1")]}


def test_pipfile_reads_packages_and_python() -> None:
    text = (
        '[packages]\ntensorflow = "==1.14"\nnumpy = "*"\n[dev-packages]\npylint = "*"\n'
        '[requires]\npython_version = "3.6"\n'
    )
    assert read_pipfile(text) == {
        "": [(2, "tensorflow==1.14"), (3, "numpy"), (7, "python==3.6.*")],
        "dev": [(5, "pylint")],
    }


def test_conda_file_becomes_requirements() -> None:
    text = (
        "name: x\ndependencies:\n  - python=3.6\n  - tensorflow-gpu=1.13\n  - cudatoolkit=10.0\n"
        "  - pip:\n    - gym==0.10.5\n"
    )
    assert read_conda_text(text) == {
        "": [(3, "python==3.6.*"), (4, "tensorflow-gpu==1.13.*"), (7, "gym==0.10.5")]
    }


def test_conda_list_becomes_requirements() -> None:
    text = "# platform: linux-64\nnumpy=1.14.2=py36h1_0\nopenssl=1.0.2=h1_0\ntqdm=4.1=pypi_0\n"
    assert read_conda_list(text) == {"": [(2, "numpy==1.14.2"), (4, "tqdm==4.1")]}


READERS: tuple[Callable[[str], Groups], ...] = (
    read_setup_py,
    read_setup_cfg,
    read_pyproject,
    read_pipfile,
    read_conda_text,
    read_conda_list,
)
BOMB = "a: &a [x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + last] * 9)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)
DOUBLING = "".join(f"V{i} = V{i + 1} + V{i + 1}\n" for i in range(60))
HOSTILE = {
    "nothing": "",
    "zeros": "\0" * 100,
    "brackets": "[" * 100_000,
    "parentheses": "x = " + "(" * 100_000,
    "minuses": "x = " + "-" * 100_000 + "1",
    "sum": "x = 1" + "+1" * 100_000,
    "aliases": f"{BOMB}dependencies: *i\n",
    "doubling": f"{DOUBLING}V60 = []\nsetup(install_requires=V0)\n",
    "cycle": "A = B\nB = A\nsetup(install_requires=A)\n",
    "dots": "[" + "a." * 100_000 + "a]\n",
    "keys": "a." * 50_000 + "b = 1\n",
    "many keys": "".join(f"{'a.' * 490}b{i} = 1\n" for i in range(250)),
    "many names": "".join(f"[packages.a{i}]\n" for i in range(15_000)),
    "nested": "dependencies:\n" + "".join(" " * i + "- \n" for i in range(500)),
    "numbers": "setup(install_requires=[" + "1," * 200_000 + "])",
    "digits": "dependencies:\n  - numpy=" + "9" * 5000 + "\n",
    "types": "dependencies: {pip: 1}\n",
    "tagged": "dependencies: !!python/object/apply:os.system ['id']\n",
    "many packages": "[packages]\n" + "".join(f"a{i} = '1'\n" for i in range(1500)),
    "many entries": "dependencies:\n" + "- numpy\n" * 1500,
    "many strings": "setup(install_requires=[" + "'a'," * 1500 + "])",
    "long string": 'setup(install_requires="""' + "a\n" * 1500 + '""")',
    "section": "[options\ninstall_requires = a\n",
    "table": 'tool = 1\nproject = "x"\n[packages]\nrequires = 2\n',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_readers_survive_hostile_text(name: str) -> None:
    start = time.monotonic()
    for read in READERS:
        for lines in read(HOSTILE[name]).values():
            assert len(lines) <= 1000
    assert time.monotonic() - start < 20
