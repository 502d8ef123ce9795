"""Errors that end a command: one paragraph and one exit code.

The paragraph names what is wrong, where (``file:line`` in a file) and what to do.
"""

from imgbuild.core.text import printable, without_logins


class ImgbuildError(Exception):
    """Base of every error that is shown to the user as a paragraph, without a traceback."""

    exit_code: int = 1

    def __str__(self) -> str:
        """Return the paragraph, without logins of addresses and for any terminal."""
        return printable(without_logins(super().__str__()))


class CheckFailedError(ImgbuildError):
    """A build, a check or a suite failed. Exit code 1."""


class InputError(ImgbuildError):
    """The matrix, the settings or the options are wrong. Exit code 2."""

    exit_code = 2


class MachineError(ImgbuildError):
    """This machine lacks something: an engine, disk, an upstream, a tool. Exit code 3."""

    exit_code = 3
