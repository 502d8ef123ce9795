"""A repository is written in one way, in every option that takes one."""

import re

import pytest
import typer
from typer.testing import CliRunner

from imgbuild.cli import commands

WIDE = {"COLUMNS": "300", "TERMINAL_WIDTH": "300", "NO_COLOR": "1"}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("push", ["--to"]),
        ("build", ["--from", "--cache-from", "--cache-to"]),
        ("matrix", ["--from"]),
        ("published", ["--from"]),
    ],
)
def test_help(command: str, options: list[str]) -> None:
    app = typer.Typer()
    commands.register(app)
    result = CliRunner().invoke(app, [command, "--help"], env=WIDE)
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    for option in options:
        (line,) = (one for one in text.splitlines() if f"{option} " in one.split("HOST")[0])
        assert "HOST[:PORT]/REPOSITORY" in line
    assert {*re.findall(r"HOST\S*/[A-Z]+", text)} == {"HOST[:PORT]/REPOSITORY"}
