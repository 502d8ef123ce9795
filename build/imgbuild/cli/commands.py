"""The list of commands, in the order ``--help`` shows them."""

import importlib

import typer

#: Module of :mod:`imgbuild.cli` and the function in it, by command name.
COMMANDS = {
    "list": ("list", "list_images"),
    "show": ("show", "show"),
    "render": ("render", "render"),
    "build": ("build_command", "build"),
    "test": ("test_command", "test"),
    "push": ("push", "push"),
    "size": ("size", "size"),
    "matrix": ("matrix_command", "matrix"),
    "published": ("published", "published"),
    "fetch": ("fetch", "fetch"),
    "lock": ("lock", "lock"),
    "audit": ("audit", "audit"),
    "doctor": ("doctor_command", "doctor"),
    "clean": ("clean", "clean"),
}


def register(app: typer.Typer) -> None:
    """Add every command to ``app``."""
    for name, (module, function) in COMMANDS.items():
        command = getattr(importlib.import_module(f"imgbuild.cli.{module}"), function)
        app.command(name)(command)
