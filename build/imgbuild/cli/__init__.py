"""The command line: one command a module; heavy imports only when a command runs."""

import atexit
import importlib
import io
import os
import signal
import sys
import tempfile
import time
import traceback
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from imgbuild import __version__, json_log
from imgbuild.cli.options import option
from imgbuild.errors import ImgbuildError, InputError, MachineError
from imgbuild.project import state_dir
from imgbuild.text import PrintableStream

#: What shells give for a program ended by Ctrl-C.
INTERRUPTED = 130

app = typer.Typer(
    name="imgbuild",
    no_args_is_help=True,
    # Rich help would import Rich, Markdown and Pygments: 0.2 s of every --help.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


#: The commands in the order of ``--help``; each is a function of ``imgbuild.cli.<name>_command``.
COMMANDS = (
    *("list", "show", "render", "build", "test", "push", "size"),
    *("matrix", "published", "fetch", "lock", "audit", "doctor", "clean"),
)
#: What an interrupt leaves behind; other commands leave nothing.
_AFTER_INTERRUPT = {
    "build": "Images that passed are tagged; no other tag was made or moved. Nothing is left "
    "running.",
    "push": "What was pushed stays in the registry, and every moving tag names a complete image. "
    "Run the same command again to continue.",
}


def register(app: typer.Typer) -> None:
    """Add every command to ``app``."""
    for name in COMMANDS:
        module = importlib.import_module(f"imgbuild.cli.{name}_command")
        app.command(name)(module.list_images if name == "list" else getattr(module, name))


def main() -> NoReturn:
    """Run the command line; an expected error is one paragraph on stderr and an exit code."""
    register(app)
    for name in ("stdout", "stderr"):
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ✓ gets a ?
            setattr(sys, name, PrintableStream(stream))
    if json_log.requested(sys.argv[1:]):
        json_log.begin()
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's choice stays
        signal.signal(signal.SIGHUP, _terminate)
    try:
        require_values(sys.argv[1:])
        app(standalone_mode=True)
    except ImgbuildError as error:
        _end(str(error), error.exit_code)
    except SystemExit as ending:  # Typer's way to end, of an interrupt too
        if ending.code == INTERRUPTED:
            atexit.register(_finish_cleaning)
            _end(interruption(sys.argv[1:]), INTERRUPTED)
        raise
    except OSError as error:  # a full disk, a folder without permission
        _end(_refusal(error), MachineError.exit_code)
    except Exception as error:  # noqa: BLE001 - a fault of this program
        _end(_own_fault(error), MachineError.exit_code)
    sys.exit(0)


def require_values(words: list[str]) -> None:
    """Refuse an empty value, such as that of a shell's variable: it would count as no option."""
    for before, word in pairwise(["", *words]):
        name, separator, value = word.partition("=") if word[:2] == "--" else (before, "=", word)
        if separator and not value.strip():
            what = name if name.startswith("-") else "an argument"
            raise InputError(f"{what} has an empty value. Give one, or leave it out.")


def interruption(words: list[str]) -> str:
    """Return the message for an interrupted command line."""
    command = next((word for word in words if word in COMMANDS), "")
    return f"interrupted. {_AFTER_INTERRUPT.get(command, 'Nothing is left running.')}"


def _refusal(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if isinstance(error, IsADirectoryError | NotADirectoryError | FileExistsError):
        return f"{where}{error.strerror}. Move away what is there; imgbuild makes its own."
    return (
        f"this machine refused: {where}{error.strerror or error}. Check the permissions and the "
        "free space of that folder, or choose others: --report for results, XDG_STATE_HOME for "
        "logs and reports, XDG_CACHE_HOME for base images, TMPDIR for temporary files."
    )


def _own_fault(error: Exception) -> str:
    """Return the message for an error that nothing handles; its traceback goes into a log."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return (
        f"imgbuild itself failed: {said}. {_traceback_log(error)} If you have just changed a file, "
        "an option or a variable, look there first; else report this with the traceback."
    )


def _traceback_log(error: Exception) -> str:
    """Write the log into the state folder, else among temporary files; return where it is."""
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-traceback-"
    for find in (lambda: state_dir() / "logs", tempfile.gettempdir):
        try:
            folder = Path(find())
            folder.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(".log", name, folder)
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as log:
                log.writelines(traceback.format_exception(error))
        except (OSError, ImgbuildError):
            continue
        return f"The traceback is in {path}."
    return "No folder for logs can be written, so its traceback is lost; set XDG_STATE_HOME."


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"imgbuild {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    settings: Annotated[
        Path | None, option("--settings FILE", "Settings file, instead of imgbuild.local.yaml.")
    ] = None,
    mirror: Annotated[
        list[str] | None,
        option(
            "--mirror NAME=URL", "Use this site instead of an upstream of the matrix; repeatable."
        ),
    ] = None,
    _: Annotated[
        bool, option("--version", "Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Build, test and publish container images for TensorFlow 1.10 to 2.3."""
    # The environment carries them to wherever settings are read, in this process and its children.
    if settings:
        os.environ["IMGBUILD_SETTINGS"] = str(settings.absolute())
    if mirror is not None:
        os.environ["IMGBUILD_MIRRORS"] = " ".join(mirror)


def _end(paragraph: str, code: int) -> NoReturn:
    if isinstance(sys.stderr, json_log.JsonLog):
        sys.stderr.emit("error", error=paragraph, exit_code=code)
    else:
        print(f"imgbuild: {paragraph}", file=sys.stderr)  # noqa: T201 - no rich before it is needed
    sys.exit(code)


def _finish_cleaning() -> None:
    """Let a second signal, which `timeout` sends, not keep a folder from being removed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    """Turn ``kill`` into the exception that Ctrl-C raises, so that both clean up alike."""
    raise KeyboardInterrupt
