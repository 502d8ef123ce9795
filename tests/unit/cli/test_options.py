"""The selection options of the commands that have them."""

import inspect

import typer
from typer.testing import CliRunner

from imgbuild.cli.options import takes_selection
from imgbuild.matrix.selection import Selection

OPTIONS = ("--tf", "--cpu", "--gpu", "--stack", "--mpi", "--all", "--as-documented", "--name")


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


def test_a_command_has_the_options_before_its_own() -> None:
    assert [*inspect.signature(command).parameters][-2:] == ["first", "last"]
    help_text = _run("--help")
    assert "Show the selection." in help_text
    assert [option for option in OPTIONS if option not in help_text] == []


def test_options_arrive_as_one_selection() -> None:
    output = _run("a", "b", "x", "--tf", "2.2", "--gpu", "--last", "--name", "c")
    assert output.strip() == f"x {Selection(('2.2',), gpu=True, names=('a', 'b', 'c'))} True"
