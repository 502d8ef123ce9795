"""Draw lines over two axes in powers as an SVG that is readable in light and in dark."""

from collections.abc import Mapping, Sequence
from math import ceil, log10
from typing import NamedTuple

LEFT, TOP, WIDTH, HEIGHT = 70, 20, 500, 330
#: Of the lines, in their order, light and dark; the last one is dashed.
COLOURS = (("#cf222e", "#ff7b72"), ("#0969da", "#58a6ff"), ("#1a7f37", "#3fb950"))
LAST = ("#6e7781", "#8b949e")


class Group(NamedTuple):
    """Lines that belong together: the text at the end of the first, and the values by line."""

    text: str
    lines: Mapping[str, Sequence[float]]


def plot(title: str, axes: tuple[str, str], ticks: Sequence[int], groups: Sequence[Group]) -> str:
    """Return the SVG; every group has the same lines, with a value at each of the ``ticks``."""
    most = ceil(log10(max(max(values) for one in groups for values in one.lines.values())))

    def x(value: float) -> float:
        return round(LEFT + WIDTH * log10(value) / log10(ticks[-1]), 1)

    def y(value: float) -> float:
        return round(TOP + HEIGHT * (1 - log10(value) / most), 1)

    bottom, right, names = TOP + HEIGHT, LEFT + WIDTH, [*groups[0].lines]
    parts = [_text(x(tick), bottom + 18, f"{tick}", "middle") for tick in ticks]
    for value in (10**power for power in range(most + 1)):
        parts += [
            f'<path class="grid" d="M{LEFT} {y(value)}H{right}"/>',
            _text(LEFT - 8, y(value) + 4, f"{value:,}", "end"),
        ]
    for group in groups:
        for number, name in enumerate(names):
            points = zip(ticks, group.lines[name], strict=True)
            path = "L".join(f"{x(tick)} {y(value)}" for tick, value in points)
            parts.append(f'<path class="line{number}" d="M{path}"/>')
        parts.append(_text(right + 8, y(group.lines[names[0]][-1]) + 4, group.text))
    for number, name in enumerate(names):
        left, top = LEFT + 250 * (number % 2), bottom + 66 + 18 * (number // 2)
        parts.append(f'<path class="line{number}" d="M{left} {top - 4}h30"/>')
        parts.append(_text(left + 38, top, name))
    turned = f'<g transform="translate(16 {TOP + HEIGHT / 2}) rotate(-90)">'
    parts.append(_text(LEFT + WIDTH / 2, bottom + 40, axes[0], "middle"))
    parts.append(f"{turned}{_text(0, 0, axes[1], 'middle')}</g>")
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 450" role="img">'
        f"<title>{title}</title><style>{_style(len(names))}</style>"
        f'<rect width="680" height="450"/>{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{text}</text>'


def _style(lines: int) -> str:
    colours = [*COLOURS[: lines - 1], LAST]
    light, dark = (
        "".join(f".line{i}{{stroke:{pair[which]}}}" for i, pair in enumerate(colours))
        for which in (0, 1)
    )
    return (
        "text{font:13px sans-serif;fill:#1f2328}rect{fill:#fff}path{fill:none;stroke-width:2}"
        f".grid{{stroke:#8886;stroke-width:1}}.line{lines - 1}{{stroke-dasharray:4 4}}{light}"
        "@media(prefers-color-scheme:dark){"
        f"text{{fill:#e6edf3}}rect{{fill:#0d1117}}{dark}}}"
    )
