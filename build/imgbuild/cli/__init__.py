"""The command line: one module per command. Slow imports happen only when a command runs."""

import atexit
import errno
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, pairwise, takewhile
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import typer
import typer.core

from imgbuild.cli.error_stream import ErrorStream
from imgbuild.cli.options import open_project, option
from imgbuild.cli.removed_options import (
    refuse_removed_command,
    refuse_removed_options,
    refuse_removed_variables,
)
from imgbuild.core.errors import ImgbuildError, InputError, MachineError
from imgbuild.core.project import SettingsOptions
from imgbuild.core.text import printable

#: The exit code that shells use for a program that Ctrl-C ended.
INTERRUPTED = 130

#: The commands under their headings, in the order of ``--help``. Each is a function or a command
#: group in ``imgbuild.cli.<name>_command``.
GROUPS = {
    "Use images": ("adopt", "list", "show", "diff", "catalog", "extend", "run"),
    "Build": ("doctor", "build", "test", "clean"),
    "Publish": ("push", "release", "sbom", "scan", "verify"),
    "Maintain a family": ("init", "add", "lock", "render", "audit", "matrix"),
}
COMMANDS = tuple(chain.from_iterable(GROUPS.values()))


class CommandGroups(typer.core.TyperGroup):
    """Show the commands in ``--help`` under their headings."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - of a copy of click
        refuse_removed_command(cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - of a copy of click
        width = max(map(len, self.commands))
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                summaries = []
                for name in filter(self.commands.__contains__, names):
                    command = self.commands[name]
                    summary = command.get_short_help_str(formatter.width - width - 4)
                    summaries.append((name.ljust(width), summary))
                formatter.write_dl(summaries)


app = typer.Typer(
    name="imgbuild",
    cls=CommandGroups,
    no_args_is_help=True,
    # Rich help would import Rich, Markdown and Pygments: 0.2 s of every --help.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: The state after an interrupt, for commands that may leave something behind.
_AFTER_INTERRUPT = {
    "build": "Images that passed are tagged; no other tag was created or moved. Nothing is left "
    "running.",
    "extend": "No tag was created or moved; the lock stays if it was written. Nothing is left "
    "running.",
    "verify": "The new images are removed; no tag was created or moved. Nothing is left running.",
    "push": "Pushed images stay in the registry, and every moving tag points to a complete image. "
    "Run the same command again to continue.",
    "release prune": "Some releases may be deleted; nothing else has changed. Run the same command "
    "again to delete the rest.",
}


def register(app: typer.Typer, names: Iterable[str] = COMMANDS) -> None:
    for name in names:
        module = importlib.import_module(f"imgbuild.cli.{name}_command")
        kind = getattr(module, "ProgramCommand", None)
        command = module.list_images if name == "list" else getattr(module, name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=kind)(command)


def main() -> NoReturn:
    """Run the command line. Each error is one paragraph on stderr, with an exit code."""
    gc.set_threshold(20_000)  # collect less often: imported modules and read files stay in use
    sys.argv[1:] = as_options(sys.argv[1:])
    # If the first word is a command, import only its module. A later word may be the value of an
    # option.
    register(app, [word for word in sys.argv[1:2] if word in COMMANDS] or COMMANDS)
    own = own_words(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ✓ shows ?
    if sys.stderr:  # None if the caller closed it
        sys.stderr = ErrorStream(sys.stderr)
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it on purpose
        signal.signal(signal.SIGHUP, _terminate)
    try:
        require_values(own)
        refuse_removed_options(own)
        app(prog_name="imgbuild", standalone_mode=True)
    except ImgbuildError as error:
        _end(error, error.exit_code)
    except SystemExit as ending:  # Typer always exits like this, also after an interrupt
        if ending.code == INTERRUPTED:
            atexit.register(_finish_cleaning)
            _end(ImgbuildError(interruption(own)), INTERRUPTED)
        raise
    except OSError as error:  # a full disk, a folder without permission
        kind = InputError if error.errno == errno.ENAMETOOLONG else MachineError
        _end(kind(_refusal(error)), kind.exit_code)
    except Exception as error:  # noqa: BLE001 - a bug in imgbuild
        _end(MachineError(_own_fault(error)))
    sys.exit(0)


def as_options(words: list[str]) -> list[str]:
    """Replace the first word ``help`` or ``version`` by the option that does the same."""
    if words[:1] == ["version"]:
        return ["--version", *words[1:]]
    if words[:1] == ["help"]:
        return [*words[1:2], "--help"]
    return words


def own_words(words: list[str]) -> list[str]:
    """Return the words before ``--``; the words after it belong to the program to run."""
    return [*takewhile("--".__ne__, words)]


def require_values(words: list[str]) -> None:
    """Raise InputError for empty values and for words with control characters.

    An empty value, for example of an unset shell variable, would count as a missing option. Control
    characters would reach the terminal because messages about unknown options quote them.
    """
    for before, word in pairwise(["imgbuild", *words]):
        name, separator, value = word.partition("=") if word[:2] == "--" else (before, "=", word)
        if separator and not value.strip() and not {"-h", "--help"} & {*words}:
            raise InputError(f"The value of {name} is empty. Give a value, or omit the option.")
        if word != printable(word):
            raise InputError(f"'{word}' has unprintable characters. Remove them.")


def interruption(words: list[str]) -> str:
    command = next((word for word in words if word in COMMANDS), "")
    if command == "release" and "prune" in words:
        command = "release prune"
    return f"interrupted. {_AFTER_INTERRUPT.get(command, 'Nothing is left running.')}"


def _refusal(error: OSError) -> str:
    """Return the message for an error of the operating system."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENAMETOOLONG:
        return f"{where[:80]}… is too long for a file name. Give a shorter name."
    if isinstance(error, IsADirectoryError | NotADirectoryError | FileExistsError):
        return f"{where}{error.strerror}. Move it away; imgbuild creates what it needs there."
    above = Path(str(error.filename)).parents if isinstance(error, PermissionError) else ()
    if any(os.path.exists(folder / "matrix.yaml") for folder in above):  # noqa: PTH110 - no error
        what = f"{where}{error.strerror}. This path belongs to the checkout"
        return f"{what}: give this user access to it, or work in your own clone."
    return (
        f"The operating system reports: {where}{error.strerror or error}. Check the permissions "
        "and the free space of this folder, or choose another folder: --report for results, "
        "XDG_STATE_HOME for logs and reports, XDG_CACHE_HOME for base images, TMPDIR for temporary "
        "files."
    )


def _own_fault(error: Exception) -> str:
    """Write the traceback of a bug in imgbuild to a file, and return the error message."""
    import tempfile
    import traceback

    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    place = "lost, because no temporary file can be written"
    with suppress(OSError):
        handle, log = tempfile.mkstemp(".log", "imgbuild-")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.writelines(traceback.format_exception(error))
        place = f"in {log}"
    return (
        f"imgbuild itself failed: {said}. The traceback is {place}. If you have just changed a "
        "file, an option or a variable, check this change first. Otherwise, report this error with "
        "the traceback."
    )


def _version(requested: bool) -> None:
    if not requested:
        return
    from importlib.metadata import PackageNotFoundError, version

    number = "(unknown version: its package is not installed)"
    with suppress(PackageNotFoundError):
        number = version("imgbuild")
    try:
        # --version runs before the other options are parsed, so read the environment here.
        folder, settings = map(os.environ.get, ("IMGBUILD_PROJECT", "IMGBUILD_SETTINGS"))
        named = SettingsOptions(Path(settings) if settings else None)
        project = open_project(Path(folder) if folder else None, named)
        where = f"installed with imgbuild {number}" if project.is_installed else project.root
    except InputError as error:
        where = f"none. {error}"
    typer.echo(printable(f"imgbuild {number}\nImages: {where}"))
    raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    settings: Path | None = option(
        "--settings FILE",
        "Use this settings file instead of imgbuild.local.yaml.",
        envvar="IMGBUILD_SETTINGS",
    ),
    mirror: list[str] | None = option(
        "--mirror NAME=URL",
        "Use this mirror instead of an upstream of the matrix; repeatable.",
        envvar="IMGBUILD_MIRRORS",
    ),
    _: bool = option(
        "--version",
        "Show the version and the folder of the images.",
        default=False,
        callback=_version,
        is_eager=True,
    ),
) -> None:
    """Build, test and publish container images with old versions of TensorFlow.

    \b
    imgbuild list --gpu-model A100     find an image for your GPU
    imgbuild build --tf 2.2            build and test an image
    imgbuild run --tf 2.2 -- PROGRAM   print the command that runs your program
    """  # noqa: D301 - click keeps the line breaks of a paragraph after a backspace
    refuse_removed_variables()
    ctx.obj = SettingsOptions(settings.absolute() if settings else None, tuple(mirror or ()))


def _end(error: ImgbuildError, code: int = MachineError.exit_code) -> NoReturn:
    print(f"imgbuild: {error}", file=sys.stderr)  # noqa: T201 - importing rich is slow
    sys.exit(code)


def _finish_cleaning() -> None:
    """Ignore further signals, for example from `timeout`, while folders are removed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    """Raise the exception of Ctrl-C, so that ``kill`` causes the same cleanup."""
    raise KeyboardInterrupt
