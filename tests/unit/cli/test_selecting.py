"""The selection options of every command that has them."""

import inspect

import pytest
import typer
from typer.testing import CliRunner

from imgbuild.cli.selecting import Chosen, selecting, selecting_without

OPTIONS = ("--tf", "--cpu", "--gpu", "--stack", "--mpi", "--all", "--as-documented", "--name")


@selecting
def command(first: str, chosen: Chosen, *, last: bool = False) -> None:
    """Show what was chosen."""
    typer.echo(f"{first} {chosen} {last}")


def _run(*words: str) -> str:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_command_has_the_options_where_its_parameter_was() -> None:
    names = [*inspect.signature(command).parameters]
    assert (names[0], names[1], names[-1]) == ("first", "tf", "last")
    assert "chosen" not in names
    help_text = _run("--help")
    assert "Show what was chosen." in help_text
    for option in OPTIONS:
        assert option in help_text


def test_what_is_given_arrives() -> None:
    said = _run("x", "--tf", "2.2", "--gpu", "--last", "--name", "a", "--name", "b")
    assert said.strip() == f"x {Chosen(tf=['2.2'], gpu=True, name=['a', 'b'])} True"


def test_a_command_can_be_called_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    command(first="x", tf=["2.2"])
    assert capsys.readouterr().out.strip() == f"x {Chosen(tf=['2.2'])} False"


def test_a_command_may_lack_an_option() -> None:
    @selecting_without("everything")
    def lacking(chosen: Chosen) -> None:
        typer.echo(chosen.everything)

    names = inspect.signature(lacking).parameters
    assert "everything" not in names
    assert "as_documented" in names


@pytest.mark.parametrize(
    ("chosen", "given", "whole"),
    [
        (Chosen(), False, True),
        (Chosen(stack="debian"), True, True),
        (Chosen(tf=["2.2"]), True, False),
        (Chosen(name=["tf-2.2-cpu-debian"]), True, False),
    ],
)
def test_what_was_meant(chosen: Chosen, *, given: bool, whole: bool) -> None:
    assert chosen.any is given
    assert chosen.or_everything.everything is whole
