"""Remove logins from standard error."""

import io
from contextlib import suppress
from typing import TextIO

from imgbuild.core.text import without_logins


class ErrorStream(io.TextIOBase):
    """Standard error without the logins in addresses, because Typer's messages quote arguments.

    Ignore write errors, for example on a full disk, so that the exit code stays right.
    """

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(without_logins(text))
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
