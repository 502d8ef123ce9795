"""Steps and durations as people read them."""

import re

STEP_WIDTH = 72
_FEW_BYTES = 1_000_000
_OPTIONS = re.compile(r"\b(RUN|COPY|ADD)(?:\s+--\S+)+")
_HERE_DOCUMENT = re.compile(r"\s*<<'?\w+'?(?: \(.*\))?$")
_STAGE = re.compile(r"\[(\S+)(?: \d+/\d+)?\] ")


def shortened(step: str, width: int = STEP_WIDTH) -> str:
    """Return a step for people: ``[horovod 3/4] RUN make …`` as ``horovod 3/4 RUN make …``.

    Options and here-documents are left out: they say how a step runs, not what it does.
    """
    bare = step.replace("[", "", 1).replace("]", "", 1) if step.startswith("[") else step
    bare = _HERE_DOCUMENT.sub("", _OPTIONS.sub(r"\1", bare))
    return bare if len(bare) <= width else bare[: width - 1] + "…"


def stage_of(step: str) -> str:
    """Return the Dockerfile stage of a step, such as ``horovod``; "" for BuildKit's own steps."""
    found = _STAGE.match(step)
    return found[1] if found else ""


def clock_time(seconds: float) -> str:
    """Return a duration for people: ``12.3s``, ``4m05s``, ``1h02m``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def about(seconds: float) -> str:
    """Return an estimate for people, no finer than it can be: ``40s``, ``6m``, ``1h20m``."""
    if seconds < 55:
        return f"{max(10, round(seconds / 10) * 10)}s"
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(round(minutes / 10) * 10, 60)
    return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"


def moved_text(current: int, total: int) -> str:
    """Return bytes that have moved, of how many if that is known: ``12/40 MB``; "" for few."""
    if max(current, total) < _FEW_BYTES:
        return ""
    unit, factor = ("GB", 1e9) if max(current, total) >= 10**9 else ("MB", 1e6)
    digits = 1 if unit == "GB" else 0
    of = f"/{total / factor:.{digits}f}" if total > current else ""
    return f"{current / factor:.{digits}f}{of} {unit}"
