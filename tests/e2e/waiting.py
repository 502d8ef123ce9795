"""Waiting for what another process does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Return once it is so; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what was waited for did not happen"
        time.sleep(0.05)
