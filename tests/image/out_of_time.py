"""The verdict of a check that ran out of time: a slow machine may be the only reason.

Programs of suites end with the exit code of `timeout` when they waited too long themselves.
"""

from __future__ import annotations

from typing import NoReturn

import pytest

#: How the message of such a check begins; `result_stream.py` makes an outcome of it.
OUT_OF_TIME = "ran out of time: "
#: The exit codes of `timeout`, and of a program that an alarm ended (programs/one_start.py).
ENDED_BY_CLOCK = (124, 142)
#: `timeout` ends a command by SIGKILL where SIGTERM was not enough; the kernel may do so earlier.
KILLED = 137


def out_of_time(what: str) -> NoReturn:
    """End the check; the message says what it waited for, and how long."""
    __tracebackhide__ = True
    pytest.fail(f"{OUT_OF_TIME}{what}", pytrace=False)
