"""The list of commands, in the order ``--help`` shows them."""

import importlib

import typer

#: Module of :mod:`imgbuild.cli` and the function in it, by command name.
COMMANDS = {
    "render": "render",
    "lock": "lock",
    "doctor": "doctor",
}


def register(app: typer.Typer) -> None:
    """Add every command to ``app``."""
    for name, module in COMMANDS.items():
        function = getattr(importlib.import_module(f"imgbuild.cli.{module}"), module)
        app.command(name)(function)
