"""Requirement lists of people on an image, by a plain `docker build`, without imgbuild."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.checkout import ROOT, Bases, Checkout
from support.copied_checkout import ca_bundle

Build = Callable[[bytes, str], subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.nightly

LISTS = ROOT / "tests" / "data" / "base-of-a-dockerfile"
DOCKERFILE = """\
FROM {}
COPY requirements.txt .
RUN --mount=type=secret,id=ca PIP_CERT=/run/secrets/ca {} install --no-cache-dir -r requirements.txt
"""
#: The packages that the image keeps at another version, and modules that can be imported then.
ASIDE = {
    "sklearn.txt": ({"numpy", "tensorflow-gpu"}, "sklearn, keras, matplotlib, schema"),
    "vision.txt": (set[str](), "scipy, imageio"),
    "plots.txt": ({"tensorflow"}, "seaborn"),
    "probability.txt": ({"protobuf", "tensorflow"}, "tensorflow_probability, sklearn"),
    "faces.txt": ({"numpy", "tensorflow"}, "keras"),
    "torch.txt": ({"tensorflow"}, "torchvision, twisted, scipy"),
}


@pytest.fixture
def build(base: Bases, checkout: Checkout, tag: str, tmp_path: Path) -> Build:
    """Give a build on the image of TensorFlow 2.2 that installs requirements with a program."""

    def run(requirements: bytes, program: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "requirements.txt").write_bytes(requirements)
        text = DOCKERFILE.format(base("tf-2.2-cpu-debian").tag, program)
        (tmp_path / "Dockerfile").write_text(text, encoding="utf-8")
        secret = f"--secret=id=ca,src={ca_bundle(ROOT)}"
        options = ("--progress=plain", "--no-cache", secret, f"--tag={tag}")
        return checkout.docker("build", *options, str(tmp_path), timeout=800)

    return run


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ASIDE)
def test_pip_image_installs_lists_of_people(
    build: Build, checkout: Checkout, tag: str, name: str
) -> None:
    aside, modules = ASIDE[name]
    result = build((LISTS / name).read_bytes(), "pip-image")
    assert result.returncode == 0, result.stderr
    lines = re.findall(r"pip-image: puts aside requirements.txt:\d+: ([\w-]+)", result.stderr)
    assert {*lines} == aside
    program = (
        f"import tensorflow, numpy, {modules}; print(tensorflow.__version__, numpy.__version__)"
    )
    printed = checkout.printed("run", "--rm", tag, "python", "-c", program)
    assert printed.splitlines()[-1] == "2.2.3 1.18.5"


def test_pip_image_refuses_another_tensorflow(build: Build) -> None:
    result = build(b"pandas\ntensorflow==2.4.1\n", "pip-image")
    assert result.returncode != 0
    assert "exit code: 2" in result.stderr
    assert "requirements.txt:2: tensorflow==2.4.1" in result.stderr


def test_pip_image_says_what_a_list_contradicts(build: Build) -> None:
    """The image is not in the way, so nothing says that it is."""
    content = (LISTS / "contradiction.txt").read_bytes()
    result = build(content, "pip-image")
    assert result.returncode != 0
    assert "torchvision 0.9.0 depends on torch==1.8.0" in result.stderr
    assert "The image keeps" not in result.stderr


@pytest.mark.parametrize("pip", ["pip", "python -m pip"])
def test_plain_pip_names_the_lines_and_the_command(build: Build, pip: str) -> None:
    content = b"tensorflow==2.2.0\ntqdm\nnumpy==1.16.6\n"
    result = build(content, pip)
    assert result.returncode != 0
    said = result.stderr.partition("The image keeps")[2]
    assert "requirements.txt:1: tensorflow==2.2.0" in said
    assert "requirements.txt:3: numpy==1.16.6" in said
    assert "pip-image install --no-cache-dir -r requirements.txt" in said


def test_a_newer_pip_keeps_the_explanation(base: Bases, checkout: Checkout) -> None:
    program = "pip install -q --upgrade pip && ! pip install -q --no-index numpy==1.16.6"
    bundle = f"--volume={ca_bundle(ROOT)}:/ca:ro"
    words = ("run", "--rm", bundle, "--env=PIP_CERT=/ca", base("tf-2.2-cpu-debian").tag)
    result = checkout.docker(*words, "sh", "-c", program, code=0)
    assert "pip-image install -q --no-index numpy==1.16.6" in result.stderr


@pytest.mark.parametrize("name", ["tf-2.2-cpu-debian", "tf-2.15-cpu-debian"])
def test_constraints_do_not_reach_virtual_environments(
    base: Bases, checkout: Checkout, name: str
) -> None:
    """In images with Debian's Python, the image's own Python is one."""
    own = checkout.printed("run", "--rm", base(name).tag, "pip", "config", "list")
    assert "/opt/python/constraints.txt" in own
    program = (
        "python -m venv --without-pip /v && PYTHONPATH=$(python -c 'import pip, os;"
        " print(os.path.dirname(os.path.dirname(pip.__file__)))') /v/bin/python -m pip config list"
    )
    venv = checkout.printed("run", "--rm", base(name).tag, "sh", "-c", program)
    assert "constraints" not in venv
