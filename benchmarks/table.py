"""Tables in Markdown: readable in a terminal, and what docs/evidence.md is made of."""

from collections.abc import Sequence

from benchmarks.samples import Samples, ratio


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose columns are aligned."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [_line(head, widths), "|" + "|".join("-" * (w + 2) for w in widths) + "|"]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def seconds(value: float | None) -> str:
    """Return seconds with as many digits as mean something; a dash if there are none."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(value: float | None) -> str:
    """Return a ratio with two or three digits; a dash if there is none."""
    return "–" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def megabytes(value: float | None) -> str:
    """Return bytes as MB, small ones with a digit more; a dash if there are none."""
    if value is None:
        return "–"
    return f"{value / 1e6:.0f}" if value >= 10e6 else f"{value / 1e6:.1f}"


def timing_table(samples: Sequence[Samples], base: Samples) -> str:
    """Return a row a contestant: median and spread of the seconds, and the ratio to ``base``."""
    rows = [_timing_row(one, base) for one in samples]
    head = ["", "wall s", "from–to", "cpu s", "engine cpu s", "peak MB", f"× {base.name}"]
    kept = [i for i in range(len(head)) if i < 3 or any(row[i] != "–" for row in rows)]
    return table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _timing_row(one: Samples, base: Samples) -> list[str]:
    if not one.ok:
        return [one.name, "failed", "–", "–", "–", "–", "–"]
    wall = one.values("wall")
    return [
        one.name,
        seconds(one.median()),
        f"{seconds(min(wall))}–{seconds(max(wall))}",
        seconds(one.median("cpu")),
        seconds(one.median("engine_cpu")),
        megabytes(one.median("peak")),
        times(ratio(one, base)),
    ]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + " |"
