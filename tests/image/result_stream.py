"""Write the results of a pytest run for `imgbuild test`, one line of JSON an event."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from out_of_time import OUT_OF_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Holds the number of the file descriptor to write to; without it nothing is written.
VARIABLE = "IMGBUILD_RESULTS"
SUITE = "test_"


class ResultStream:
    """A pytest plugin that writes to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reports: list[pytest.TestReport] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write how many checks there are."""
        self._write({"checks": len(session.items)})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write the suite of a check that begins."""
        self._reports = []
        self._write({"begins": suite_of(nodeid)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of a set-up, a call or a clean-up until the check has ended."""
        self._reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write the result of a check that has ended."""
        failed = [report.longreprtext for report in self._reports if report.failed]
        late = failed and all(text.startswith(OUT_OF_TIME) for text in failed)
        outcome = "timed out" if late else "failed"
        skipped = [reason_of(report) for report in self._reports if report.skipped]
        self._write(
            {
                "suite": suite_of(nodeid),
                "test": nodeid.partition("::")[2],
                "outcome": outcome if failed else "skipped" if skipped else "passed",
                "seconds": round(sum(report.duration for report in self._reports), 3),
                "message": "\n".join(failed or skipped),
            }
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write that no result is missing: the other plugins have written their files, too."""
        self._write({"ended": True})

    def _write(self, event: Mapping[str, object]) -> None:
        with suppress(OSError):  # the reader has gone
            os.write(self._descriptor, f"{json.dumps(event)}\n".encode())


def result_stream() -> ResultStream | None:
    """Return the plugin where a reader waits; programs that pytest starts do not inherit it."""
    number = os.environ.pop(VARIABLE, "")
    return ResultStream(int(number)) if number.isdigit() else None


def reason_of(report: pytest.TestReport) -> str:
    """Return why a check was skipped."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ") or "no reason"
    return str(getattr(report, "wasxfail", "")) or "no reason"


def suite_of(nodeid: str) -> str:
    """Return the suite of a check.

    >>> suite_of("tests/image/test_pins.py::test_pin[docker://0af9-git]")
    'pins'
    """
    file = nodeid.partition("::")[0].rpartition("/")[2]
    return file.removesuffix(".py").removeprefix(SUITE)
