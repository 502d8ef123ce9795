"""How long a program may wait. Where the processor is emulated, its copy has another factor."""

FACTOR = 1


def allowed(seconds):
    """Return how long something may take here that usually takes at most so many seconds."""
    return seconds * FACTOR
