"""Tell whoever started pytest how far it is, a line of JSON at a time."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

#: Holds the number of the file descriptor to write to; without it nothing is told.
VARIABLE = "IMGBUILD_PROGRESS"
SUITE = "test_"


class Teller:
    """A pytest plugin that writes to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell how many checks there are."""
        self._tell(checks=len(session.items))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tell which suite a check that begins is of."""
        self._tell(begins=suite_of(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a failure as soon as it is known."""
        if report.failed:
            self._tell(failed=f"{suite_of(report.nodeid)}: {report.nodeid.rpartition('::')[2]}")

    def pytest_runtest_logfinish(self) -> None:
        """Tell that a check has ended, well or not."""
        self._tell(done=1)

    def _tell(self, **news: int | str) -> None:
        with suppress(OSError):  # nobody listens any more
            os.write(self._descriptor, f"{json.dumps(news)}\n".encode())


def teller() -> Teller | None:
    """Return the plugin where somebody listens; what pytest starts does not inherit it."""
    number = os.environ.pop(VARIABLE, "")
    return Teller(int(number)) if number.isdigit() else None


def suite_of(nodeid: str) -> str:
    """Return the suite of a check.

    >>> suite_of("tests/image/test_pins.py::test_pin[docker://0af9-git]")
    'pins'
    """
    file = nodeid.partition("::")[0].rpartition("/")[2]
    return file.removesuffix(".py").removeprefix(SUITE)
