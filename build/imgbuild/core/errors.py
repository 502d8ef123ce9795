"""Errors that end a command, each with a paragraph for the user and an exit code.

The paragraph says what is wrong, where (``file:line`` for a file) and what to do.
"""

from imgbuild.core.text import printable, without_logins


class ImgbuildError(Exception):
    """Base class of the errors that users see as a paragraph, without a traceback."""

    exit_code: int = 1

    def __str__(self) -> str:
        """Return the paragraph without logins and without terminal control characters."""
        return printable(without_logins(super().__str__()))


class CheckFailedError(ImgbuildError):
    """A build, a check or a suite failed. Exit code 1."""


class InputError(ImgbuildError):
    """The matrix, the settings or the options are wrong. Exit code 2.

    ``kind`` names the fault for programs that read JSON; empty if no command prints it.
    """

    exit_code = 2

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class MachineError(ImgbuildError):
    """An engine, disk space, an upstream or a tool is not available. Exit code 3."""

    exit_code = 3
