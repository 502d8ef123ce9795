"""When and how often a request is tried again."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from imgbuild.errors import MachineError


class TransientError(Exception):
    """A fault that may pass by itself; the message completes "HOST: ".

    ``wait`` is the number of seconds that the server requests.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class GaveUpError(MachineError):
    """The last of ``tries`` failed for ``reason``; ``wait`` seconds were requested, if any."""

    def __init__(self, what: str, error: TransientError, tries: int) -> None:
        count = "1 try" if tries == 1 else f"{tries} tries"
        super().__init__(f"{what} failed: {error} ({count}).")
        self.reason, self.wait, self.tries = str(error), error.wait, count


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with full jitter: many clients must not come back at the same moment.

    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    attempts: int = 5
    #: The most seconds before the second try; it doubles with each further one.
    first_wait: float = 1.0
    #: The most seconds of a wait that the server did not request.
    longest: float = 60.0
    #: The longest wait that a server may request; beyond it there is no other try.
    longest_requested: float = 300.0

    def wait(self, failed: int, requested: float | None) -> float:
        """Return the seconds to wait after so many failed tries; infinite after the last one."""
        if failed >= self.attempts or (requested or 0.0) > self.longest_requested:
            return inf
        most = min(self.longest, self.first_wait * 2.0 ** (failed - 1))
        return max(random.uniform(0.0, most), requested or 0.0)  # noqa: S311 - no secret


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that ``Retry-After`` asks for: a number, or a date (RFC 9110, 10.2.3)."""
    value = headers.get("Retry-After")
    try:
        return Retry().parse_retry_after(value) if value else None
    except (HTTPError, ValueError, OverflowError):
        return None
