"""Files of other tools, given as requirement files, are recognized by their contents."""

from contextlib import suppress
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.extend.base_image import BaseImage
from imgbuild.extend.requirement_files import judge_lines, read_lines

#: It takes a tenth of that; exponential or quadratic time would be hours.
SECONDS = 30
FILES = {
    "pyproject": '[project]\nname = "train"\ndependencies = ["tensorflow==2.2"]\n',
    "build system": '[build-system]\nrequires = ["setuptools"]\n',
    "Poetry": '[tool.poetry]\nname = "train"\n[tool.poetry.dependencies]\npython = "^3.6"\n',
    "poetry.lock": '[[package]]\nname = "six"\nversion = "1"\n\n[metadata]\ncontent-hash = "a"\n',
    "uv.lock": 'version = 1\nrequires-python = ">=3.8"\n\n[[package]]\nname = "six"\n',
    "pylock": 'lock-version = "1.0"\n\n[[packages]]\nname = "six"\nversion = "1"\n',
    "Pipfile": '[[source]]\nname = "pypi"\n\n[packages]\ntensorflow = "==1.15"\n',
    "Pipfile.lock": '{\n    "_meta": {"hash": {}},\n    "default": {"six": {}}\n}\n',
    "setup.py": "import os\nfrom setuptools import setup\n\nsetup(name='train')\n",
    "setuptools.setup": "import setuptools\n\nsetuptools.setup(\n    name='train')\n",
    "setup.cfg": "[metadata]\nname = train\n\n[options]\ninstall_requires = six\n",
    "environment": "name: train\nchannels: [defaults]\ndependencies:\n  - python=3.6\n",
    "flat environment": "dependencies:\n- python=3.6\n",
    "notes in it": "dependencies: # all\r\n\r\n  # one\r\n\r\n  - python=3.6\r\n",
    "conda list": "# platform: linux-64\nabsl-py=0.9.0=py36_0\nblas=1.0=mkl\n",
    "explicit": "@EXPLICIT\nhttps://repo.anaconda.com/pkgs/main/noarch/six-1.14.0-py_0.conda\n",
}
WAYS = {
    "pyproject": "uv export --no-emit-project",
    "build system": "uv export --no-emit-project",
    "Poetry": "poetry export",
    "poetry.lock": "poetry export",
    "uv.lock": "uv export",
    "pylock": "uv pip compile pylock.toml",
    "Pipfile": "pipenv lock && pipenv requirements",
    "Pipfile.lock": "pipenv requirements",
    "setup.py": "pip wheel --no-deps",
    "setuptools.setup": "pip wheel --no-deps",
    "setup.cfg": "pip wheel --no-deps",
    "environment": "--conda-file",
    "flat environment": "--conda-file",
    "notes in it": "--conda-file",
    "conda list": "--conda-file",
    "explicit": "--conda-file",
}


def read(file: Path) -> tuple[str, ...]:
    base = BaseImage("me/base:1", "me/base:1", "3.6.15", "2.36", "debian-12", {}, ())
    return judge_lines(read_lines(file), base, file.parent, lambda _: None)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_another_tools_file_names_the_way(tmp_path: Path, kind: str, encoding: str) -> None:
    (tmp_path / "requirements.txt").write_text(FILES[kind], encoding=encoding)
    with pytest.raises(InputError) as error:
        read(tmp_path / "requirements.txt")
    assert "requirements.txt: this is a" in str(error.value)
    assert WAYS[kind] in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "dependencies:\n" + "# a\n\n" * 100_000 + "six\n",
        "\n" * 500_000 + "six\n",
        "import a\n" * 300_000,
        "https://a" + ".conda#" * 300_000 + " x\n",
        "six" + " " * 1_000_000 + "x\n",
        "@" * 1_000_000 + " x y\n",
        "six" + " --hash=sha256:" + "0" * 64 + " x" * 500_000 + "\n",
    ],
)
@pytest.mark.timeout(SECONDS)
def test_a_long_file_is_read_in_linear_time(tmp_path: Path, text: str) -> None:
    (tmp_path / "requirements.txt").write_text(text)
    with suppress(InputError):
        read(tmp_path / "requirements.txt")


@pytest.mark.parametrize(
    "text",
    [
        "tensorflow==2.2\n",
        "# [project]\nsix\n",
        "six==1.14.0 --hash=sha256:" + "0" * 64 + "\n",
        "requests[security]==2.21.0\n",
        "# dependencies:\n# - six\nsix\n",
        "numpy==1.18.*,!=1.18.1\n",
        "",
    ],
)
def test_a_requirements_file_is_taken_for_no_other(tmp_path: Path, text: str) -> None:
    (tmp_path / "requirements.txt").write_text(text)
    found = read(tmp_path / "requirements.txt")
    assert len(found) == len([line for line in text.splitlines() if not line.startswith("#")])
