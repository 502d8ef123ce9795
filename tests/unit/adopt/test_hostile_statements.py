"""Hostile text in every file that states versions: no traceback, bounded time."""

import time
from datetime import date
from pathlib import Path

import pytest

from imgbuild.adopt.choice import choose_image
from imgbuild.adopt.history import History
from imgbuild.adopt.repository import open_repository
from imgbuild.adopt.source_facts import SourceFacts
from imgbuild.adopt.statements import read_requested, read_stated_python, read_statements
from imgbuild.matrix.model import Matrix

NAMES = (
    "requirements.txt",
    "environment.yml",
    "Pipfile",
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "Dockerfile",
    "README.md",
    "tox.ini",
    "install.sh",
    "train.py",
)
DEEP = "(" * 900 + "python_version>'3'" + ")" * 900
HOSTILE = {
    "nothing": "",
    "zeros": "\0" * 1000,
    "surrogates": "tensorflow==\udcff\n",
    "long line": "tensorflow " * 90_000,
    "many lines": "tensorflow==1.12\n" * 20_000,
    "blanks": "tensorflow" + " " * 900_000 + "1.12",
    "versions": "tensorflow 1.4" + ", 1.5" * 100_000,
    "digits": f"tensorflow=={'9' * 1900}.{'9' * 50}\nkeras=={'1' * 900}.{'1' * 900}\n",
    "epoch": "tensorflow==1!2.0\nkeras==1!2.3\ntensorflow===foobar\ntensorflow===1.x\n",
    "marker": f"tensorflow==1.12; {DEEP}\n",
    "odd markers": "tensorflow==1.12; python_version > 'x' and extra == 'a'\n",
    "unknown marker": "tensorflow==1.12; 'x' in extras\n",
    "include": "-r requirements.txt\n-r ../requirements.txt\n-r /dev/zero\n-c \x1b[31m\n-r .\n",
    "includes": "".join(f"-r r{i}.txt\n" for i in range(5000)),
    "continued": "pip install \\\n" * 20_000,
    "arguments": "".join(f"ARG A{i}=${{A{i + 1}}}\n" for i in range(10_000)) + "$A0" * 10_000,
    "links": "[![" * 20_000 + "](" * 20_000,
    "tags": "<a" * 50_000 + "`" * 50_000,
    "dots": "a." * 100_000 + "=1",
    "asserts": "assert tf.__version__ " * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_statements_survive_hostile_text(tmp_path: Path, matrix: Matrix, name: str) -> None:
    for file in NAMES:
        text = HOSTILE[name]
        (tmp_path / file).write_text(text, encoding="utf-8", errors="surrogateescape")
    start = time.monotonic()
    repository = open_repository(tmp_path)
    sources = (SourceFacts("train.py", commands=((1, HOSTILE[name]),)),)
    statements = read_statements(repository, History(), None, sources)
    lines, notes = read_requested(repository, History(), None)
    read_stated_python(repository)
    assert time.monotonic() - start < 30
    assert len(statements) <= 500
    assert len(lines) <= 2000
    assert len(notes) <= 100
    day = date(2020, 1, 1)
    known = {"train.py": SourceFacts("train.py", tensorflow={"tensorflow": (1,)})}
    _, decisions = choose_image(None, known, statements, History(code_date=day), matrix, today=day)
    for decision in decisions:
        assert len(decision.against) < 10
        assert all(len(text) < 2000 for text in (decision.reason, *decision.against))
