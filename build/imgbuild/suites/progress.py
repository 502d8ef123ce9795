"""How far pytest is with the suites of one image, told by the suites through a pipe."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from imgbuild.suites.junit import check_name

#: Tells the in-image suites the number of the pipe's file descriptor (tests/image/telling.py).
VARIABLE = "IMGBUILD_PROGRESS"


@dataclass
class Progress:
    """Counts checks. ``milestone`` is told of suites that begin and of failures, ``step`` of all.

    ``told`` gets the lines of the pipe, each a JSON object: ``{"checks": 80}``, ``{"begins":
    "pins"}``, ``{"failed": "pins: test_x"}``, ``{"done": 1}``.
    """

    milestone: Callable[[str], None]
    step: Callable[[str], None]
    suite: str = ""
    checks: int = 0
    done: int = 0
    failed: int = 0

    def told(self, line: str) -> None:
        """Take in one line."""
        try:
            news = json.loads(line)
        except ValueError:  # the line that a kill cut off
            return
        self.checks += news.get("checks", 0)
        self.done += news.get("done", 0)
        if "failed" in news:
            self.failed += 1
            self.milestone(f"FAILED {check_name(news['failed'])}")
        if news.get("begins", self.suite) != self.suite:
            self.suite = news["begins"]
            self.milestone(self.text)
        self.step(self.text)

    @property
    def text(self) -> str:
        """Return what a line shows: ``horovod 23/80, 1 failed``."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.suite} {self.done}/{self.checks}{failed}"


@contextmanager
def pipe_to(told: Callable[[str], None]) -> Iterator[int]:
    """Give the descriptor that a process may write lines to; what it wrote is told by the end.

    The caller passes it on to one process only, and the lines end when that has ended.
    """
    reading, writing = os.pipe()
    thread = threading.Thread(target=_read, args=(reading, told), daemon=True)
    thread.start()
    try:
        yield writing
    finally:
        os.close(writing)
        thread.join(timeout=5)


def _read(descriptor: int, told: Callable[[str], None]) -> None:
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            told(line)
