"""Trying again: what may pass by itself, how often, and how long is waited."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


class PassingError(Exception):
    """A fault that may pass by itself; the message completes "HOST[:PORT]/REPOSITORY: ".

    ``wait`` is the number of seconds that the registry asked for.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Patience:
    """Exponential back-off with full jitter: many clients must not come back at the same moment.

    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    attempts: int = 5
    #: The most seconds before the second try; it doubles with each further one.
    first_wait: float = 1.0
    #: The most seconds of a wait that the registry did not ask for.
    longest: float = 60.0
    #: The longest wait that is kept if the registry asks for it; beyond it there is no other try.
    longest_asked: float = 300.0
    between: Callable[[float, float], float] = random.uniform

    def seconds(self, failed: int, asked: float | None) -> float:
        """Return how long to wait after so many failed tries; never less than was asked for."""
        most = min(self.longest, self.first_wait * 2.0 ** (failed - 1))
        return max(self.between(0.0, most), asked or 0.0)

    def ends(self, failed: int, asked: float | None) -> bool:
        """Return whether there is no other try: these were all, or it asks for too long a wait."""
        return failed >= self.attempts or (asked or 0.0) > self.longest_asked


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that ``Retry-After`` asks for: a number, or a date (RFC 9110, 10.2.3)."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now())
    except (ValueError, OverflowError):
        return None
