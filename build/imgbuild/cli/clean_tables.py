"""What ``imgbuild clean`` prints."""

import time
from collections.abc import Sequence

from imgbuild.cleaning.finding import Finding
from imgbuild.text import aligned, size_text

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def finding_lines(mine: Sequence[Finding], found: Sequence[Finding], *, removed: bool) -> str:
    """Return one line a finding, the total, and what else there is that was not asked for."""
    lines = aligned([("kind", "what", "size", "age", "why"), *map(_row, mine)]) if mine else []
    lines.append(_total(mine, removed=removed))
    others = _others([one for one in found if one not in mine])
    return "\n".join([*lines, *others])


def age_text(since: int, now: float | None = None) -> str:
    """Return how long ago a time was, in its largest unit; nothing for an unknown time."""
    if not since:
        return ""
    seconds = max(0, int((time.time() if now is None else now) - since))
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return "0 s"


def _row(one: Finding) -> tuple[str, ...]:
    why = f"{one.why}; kept: {one.kept}" if one.kept else one.why
    return one.kind, one.name, size_text(one.size) if one.size else "", age_text(one.since), why


def _total(mine: Sequence[Finding], *, removed: bool) -> str:
    going = [one for one in mine if not one.kept]
    if not going:
        return "Nothing was removed." if mine else "Nothing to clean."
    size = size_text(sum(one.size for one in going))
    count = "1 thing" if len(going) == 1 else f"{len(going)} things"
    if removed:
        return f"Removed {count}, at most {size} (layers that other images share stay)."
    return f"{count}, at most {size} (layers that other images share stay). --yes removes this."


def _others(rest: Sequence[Finding]) -> list[str]:
    kinds: dict[str, list[Finding]] = {}
    for one in rest:
        kinds.setdefault(one.kind, []).append(one)
    said = [
        f"{kind} ({len(all_)}, {size_text(sum(one.size for one in all_))})"
        for kind, all_ in kinds.items()
    ]
    return [f"Not asked for, and left: {', '.join(said)}. --only KIND names them."] if said else []
