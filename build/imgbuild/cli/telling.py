"""Telling what a command does, beside its result."""

import typer


def say(text: str) -> None:
    """Write a line to standard error; standard output is the result's."""
    typer.echo(text, err=True)
