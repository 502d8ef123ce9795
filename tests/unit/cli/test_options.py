"""The selection options of the commands that have them."""

import inspect
import re

import pytest
import typer
from typer.testing import CliRunner

from imgbuild.cli import register
from imgbuild.cli.options import takes_selection
from imgbuild.matrix.selection import Selection

OPTIONS = ("--tf", "--cpu", "--gpu", "--stack", "--mpi", "--all", "--as-documented", "--name")
COMMANDS = ("list", "show", "build", "test", "push", "size", "fetch", "matrix", "audit")
WIDE = {"COLUMNS": "300", "TERMINAL_WIDTH": "300", "NO_COLOR": "1"}


@takes_selection()
def command(first: str, selection: Selection, *, last: bool = False) -> None:
    """Show the selection."""
    typer.echo(f"{first} {selection} {last}")


def _run(*words: str) -> str:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_command_has_the_options_where_its_parameter_was() -> None:
    names = [*inspect.signature(command).parameters]
    assert (names[0], names[1], names[-1]) == ("first", "tf", "last")
    assert "selection" not in names
    help_text = _run("--help")
    assert "Show the selection." in help_text
    assert [option for option in OPTIONS if option not in help_text] == []


def test_options_arrive_as_one_selection() -> None:
    output = _run("x", "--tf", "2.2", "--gpu", "--last", "--name", "a", "--name", "b")
    assert output.strip() == f"x {Selection(('2.2',), gpu=True, names=('a', 'b'))} True"


def test_a_command_may_lack_an_option() -> None:
    @takes_selection(without="everything")
    def lacking(selection: Selection) -> None:
        typer.echo(selection.everything)

    names = inspect.signature(lacking).parameters
    assert "everything" not in names
    assert "as_documented" in names


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_selects_has_them(name: str) -> None:
    app = typer.Typer(rich_markup_mode=None)
    register(app)
    assert "--name IMAGE" in CliRunner().invoke(app, [name, "--help"]).output


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("push", ["--to"]),
        ("build", ["--cache-from", "--cache-to"]),
        ("matrix", ["--from"]),
        ("published", ["--from"]),
    ],
)
def test_every_option_that_takes_a_repository_spells_it_alike(
    name: str, options: list[str]
) -> None:
    app = typer.Typer()
    register(app)
    output = CliRunner().invoke(app, [name, "--help"], env=WIDE).stdout
    text = re.sub(r"\x1b\[[0-9;]*m", "", output)
    for option in options:
        (line,) = (one for one in text.splitlines() if f"{option} " in one.split("HOST")[0])
        assert "HOST[:PORT]/REPOSITORY" in line
    assert {*re.findall(r"HOST\S*/[A-Z]+", text)} == {"HOST[:PORT]/REPOSITORY"}
