"""Versions in text: READMEs, badges, Dockerfiles, CI files."""

import time

import pytest

from imgbuild.adopt.prose import (
    find_checks,
    find_installs,
    find_python,
    find_source_lines,
    find_tensorflow,
    names_package,
)

STATED = {
    "TensorFlow 1.12": "==1.12",
    "pip install tensorflow==1.6.0": "==1.6.0",
    "* tensorflow >= 1.4": ">=1.4",
    "Python 3.6, TF 1.8, CUDA 9.0": "==1.8",
    "![](https://img.shields.io/badge/TensorFlow-2.1-orange.svg)": "==2.1",
    "![TF 1.4](https://img.shields.io/badge/TensorFlow-%3E%3D1.4-blue)": ">=1.4",
    "conda install tensorflow-gpu=2.2": "==2.2",
    "works with both `tf 1.15`  and `tf 2.x`": "<3,>=1.15",
    "TensorFlow 1.14 or TensorFlow 1.15": "<=1.15.99,>=1.14",
    "- [TensorFlow](https://www.tensorflow.org/) (>= 1.3, < 2.0)": "<2.0,>=1.3",
    "* **TensorFlow** `1.12.0`": "==1.12.0",
    "TensorFlow (1.4+)": ">=1.4",
    "TensorFlow 1.4 or later": ">=1.4",
    "| tensorflow | 1.8.0 |": "==1.8.0",
    "TensorFlow 1.x": "==1.*",
    "TensorFlow 1.10 - 1.13": "<=1.13.99,>=1.10",
    "Tensorflow (tested on 1.4)": "==1.4",
    "requires tensorflow&gt;=1.8": ">=1.8",
    "FROM tensorflow/tensorflow:1.4.1-gpu-py3": "==1.4.1",
    "pip install https://example.org/cpu/tensorflow-1.4.0-cp35-cp35m-linux_x86_64.whl": "==1.4.0",
    '  TF_VERSION: "1.14"': "==1.14",
    "%tensorflow_version 1.x": "==1.*",
    "# A model in TensorFlow 2.0": "<2.11,>=2.0",
    "- tensorflow 2.0": "==2.0",
    "tensorflow ~= 2": ">=2",
    "TensorFlow 1.4, 1.8 or 1.12": "<=1.12.99,>=1.4",
    "version 1.8 of TensorFlow": "==1.8",
    "tensorflow 1.12.0 (not tested with 2.0)": "==1.12.0",
}
OTHER = (
    "TensorFlow 2018",
    "TensorFlow 12 times",
    "TensorFlow Hub 0.1",
    "tensorflow-probability 0.8, tensorflow_datasets==1.2",
    "FROM tensorflow/tensorflow:latest-gpu",
    "It does not work with TensorFlow 2.0.",
    "TensorFlow 2.0 is not supported.",
    "The *deprecated* implementation is based on TensorFlow 1.15",
    "TensorFlow 1.15 with custom operations is on another branch.",
    "We will port to TensorFlow 2.0",
    "arXiv 1609.04802, TensorFlow 1609.04802",
    "TensorFlow 1.99",
    "TensorFlow 2.45",
    "github.com/someone/tf-1.8x4",
)


@pytest.mark.parametrize("line", STATED)
def test_find_tensorflow_reads_usual_forms(line: str) -> None:
    versions = [*find_tensorflow(f"# Title\n\n{line}\n")]
    assert [version[:2] for version in versions] == [(3, STATED[line])]


@pytest.mark.parametrize("line", OTHER)
def test_find_tensorflow_ignores_other_numbers(line: str) -> None:
    assert [*find_tensorflow(line)] == []


def test_find_tensorflow_is_limited() -> None:
    assert len([*find_tensorflow("TensorFlow 1.4\n" * 80)]) == 50


def test_find_checks_reads_the_head_alone() -> None:
    comment = "# TensorFlow 1.4\n"
    assert [line for line, _, _ in find_checks("#\n" * 59 + comment * 2)] == [60]


def test_find_installs_joins_few_lines() -> None:
    text = "pip install \\\n" + "a==1 \\\n" * 150
    assert [*find_installs(text)] == [(1, "a==1")] * 99


def test_find_python_ignores_denied_versions() -> None:
    assert [*find_python("It does not run with Python 3.5.")] == []


def test_find_tensorflow_quotes_the_words() -> None:
    (version,) = find_tensorflow("We used **TensorFlow** (v1.8) here.")
    assert version == (1, "==1.8", "TensorFlow (v1.8)")


@pytest.mark.parametrize(
    ("line", "specifier"),
    [("Python 3.6 and 2", "==3.6.*"), ("python>=3.5", ">=3.5"), ("[Python](x) 3.5+", ">=3.5")],
)
def test_find_python_reads_usual_forms(line: str, specifier: str) -> None:
    assert [version[1] for version in find_python(line)] == [specifier]


@pytest.mark.parametrize(
    "unit", ["tensorflow ", "[", "![](", "<a ", "`a <", "tensorflow (", "n't ", "1.1 ", "tf-gpu (("]
)
def test_find_tensorflow_takes_linear_time(unit: str) -> None:
    text = "\n".join([unit * (4000 // len(unit))] * 200)
    start = time.monotonic()
    assert [*find_tensorflow(text), *find_python(text)] == []
    assert time.monotonic() - start < 10


def test_find_python_reads_lists() -> None:
    versions = [specifier for _, specifier, _ in find_python("Python 2.7, 3.5 and Python 3.6.")]
    assert versions[:2] == ["==2.7.*", "==3.5.*"]
    assert "==3.6.*" in versions
    assert ">=3.3" in [specifier for _, specifier, _ in find_python("Python 2.7 or 3.3+")]


def test_find_source_lines_names_places() -> None:
    text = "# A\n\n- Install `arms` from [git](https://host/x)\narms is new.\n$ git clone x\n"
    assert find_source_lines(text) == (
        (3, "Install `arms` from [git](https://host/x)"),
        (5, "git clone x"),
    )


def test_find_source_lines_is_limited() -> None:
    begin = time.process_time()
    lines = find_source_lines("x install " * 100_000 + "\n" + "a-install\n" * 30_000)
    assert len(lines) == 200
    assert max(len(words) for _, words in lines) <= 2000
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    ("words", "is_named"),
    [
        ("Install `multi-agent` from x", True),
        ("git clone https://host/multi_agent.git", True),
        ("pip install git+https://host/Multi.Agent", True),
        ("pip install multi-agents2", False),
        ("pip install amulti-agent", False),
    ],
)
def test_names_package_takes_other_hyphens(words: str, is_named: bool) -> None:
    assert names_package(words, "multi_agent") is is_named
