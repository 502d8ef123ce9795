"""Spans of time as people write them: ``90s``, ``30m``, ``1h30m``; ``0`` is none."""

import re

_FORM = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_duration(text: str) -> float:
    """Return the seconds of ``90s``, ``30m``, ``1h``, ``1h30m``, or ``0``.

    Raises:
        ValueError: it is of another form; a number without a unit is refused, except 0.

    """
    if text == "0":
        return 0.0
    found = _FORM.fullmatch(text)
    if not text or found is None:
        raise ValueError(f"{text!r} is not a duration, such as 90s, 30m or 1h30m (0: none)")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


def duration_text(seconds: float) -> str:
    """Return a duration in the form that `parse_duration` reads, in whole seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0"
