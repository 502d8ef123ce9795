"""``--log-format json``: standard error as one JSON object a line (docs/reference.md).

Everything that any part of the program writes there becomes a line; nothing can break the format.
"""

import io
import json
import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TextIO

from imgbuild.text import printable, without_logins

VARIABLE = "IMGBUILD_LOG_FORMAT"
OPTION = "--log-format"
Value = str | int | float | bool | None


class ErrorStream(io.TextIOBase):
    """Standard error, on which no login of an address is shown: Typer quotes arguments.

    What cannot be written, such as on a full disk, is lost: the exit code says the same.
    """

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, stream: "TextIO | ErrorStream") -> None:
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


class JsonLog(ErrorStream):
    """A text stream that turns what is written into JSON objects."""

    def __init__(self, stream: "TextIO | ErrorStream") -> None:
        super().__init__(stream)
        self._rest = ""
        self._lock = threading.RLock()

    def emit(self, event: str, **values: Value) -> None:
        """Write one object; values that are ``None`` are left out, logins in addresses too."""
        known = {
            key: without_logins(value) if isinstance(value, str) else value
            for key, value in values.items()
            if value is not None
        }
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"time": stamp, "event": event, **known}, ensure_ascii=False)
        with self._lock:
            self._stream.write(f"{printable(line)}\n")
            self._stream.flush()

    def write(self, text: str) -> int:
        """Take in text; each whole line that is not empty is a ``message``."""
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            for line in filter(str.strip, lines):
                self.emit("message", text=line.rstrip())
        return len(text)

    def close(self) -> None:
        """Write what has no line end."""
        if self._rest.strip():
            self.write("\n")
        super().close()

    def isatty(self) -> bool:
        return False


def requested(arguments: Sequence[str]) -> bool:
    """Return whether a command line or the environment asks for JSON.

    Asked before the command line is parsed: what is wrong with it must be said in JSON too.
    """
    names = [os.environ.get(VARIABLE, "")]
    names += re.findall(rf"(?:^|\0){OPTION}[=\0]([^\0]*)", "\0".join(arguments))
    return names[-1] == "json"


def begin(*, as_json: bool) -> None:
    if sys.stderr:  # a program can be started without it
        safe = ErrorStream(sys.stderr)
        sys.stderr = JsonLog(safe) if as_json else safe
