"""Time limits of checks, in seconds. An emulated processor needs more.

The factor comes from two ranks of Horovod, which took 155 to 240 s under QEMU, and 10 to 20 s
without.
"""

from __future__ import annotations

EMULATED = 10


class Patience:
    """How many times as long as usual everything may take in this run of the suites."""

    factor = 1


def allowed(seconds: int) -> int:
    """Return how long something may take here that usually takes at most `seconds`."""
    return seconds * Patience.factor
