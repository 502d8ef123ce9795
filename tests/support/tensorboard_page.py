"""What TensorBoard answers, and the charts of its page in a browser: lines that can be seen."""

from typing import Any

import pytest
import requests
from png_pixels import pixels

from support.browser import Browser
from support.checkout import ROOT
from support.waiting import wait_for

SCREENSHOTS = ROOT / "reports" / "screenshots"
ALMOST_ALL = 0.9
#: The share of a line's pixels that may change when it is hidden and shown again.
REDRAWN = 0.05
#: Every element of the page, those in shadow trees and in frames too.
ELEMENTS = """
    const every = root => [...root.querySelectorAll("*")].flatMap(element => [
        element,
        ...(element.shadowRoot ? every(element.shadowRoot) : []),
        ...(element.contentDocument ? every(element.contentDocument) : []),
    ]);
    const elements = every(document);
"""
#: The lines of charts. Plottable draws the smoothed line in full colour over the pale one of the
#: values themselves; both have a corner a point.
_LINES = ELEMENTS + 'const lines = elements.filter(one => one.matches("svg path.line"));'
_HEIGHTS = f"""
    {_LINES}
    return lines.map(path => (path.getAttribute("d") || "").split(/[ML]/).filter(Boolean)
        .map(pair => Number(pair.split(",")[1])));
"""
_SHOW = f"""
    {_LINES}
    const line = lines[arguments[0]];
    if (!line) return 0;  // the page is drawing its charts anew
    line.style.visibility = arguments[1];
    return line.getBoundingClientRect().width;
"""


def answer(url: str, **parameters: str) -> Any:
    """Return the JSON that a server of this machine answers; None if there is none, or not yet."""
    with requests.Session() as http:
        http.trust_env = False
        try:
            response = http.get(url, params=parameters, timeout=10)
        except requests.ConnectionError:
            return None
        return response.json() if response.ok else None


def follows(heights: list[float], values: list[float]) -> bool:
    """Return whether the heights of a line's corners are the values, to a chart's scale."""
    if len(heights) != len(values) or heights[0] == heights[-1]:
        return False
    scale = (heights[-1] - heights[0]) / (values[-1] - values[0])
    drawn = [values[0] + (height - heights[0]) / scale for height in heights]
    return drawn == pytest.approx(values, abs=1e-3)


def _share_seen(browser: Browser, line: int) -> float:
    """Return along how much of a line's width, of 1, the screen changes with it."""
    width: float = browser.run(_SHOW, line, "visible")
    shown = browser.screenshot()
    browser.run(_SHOW, line, "hidden")
    hidden = browser.screenshot()
    browser.run(_SHOW, line, "visible")
    again = browser.screenshot()
    changed = _differing(shown, hidden)
    # The browser smooths a few pixels of a line that is back otherwise than before. More of them
    # mean that the page is being drawn.
    if not width or len(_differing(shown, again)) > len(changed) * REDRAWN:
        return 0.0
    return len({column for _, column in changed}) / width


def _differing(first: bytes, second: bytes) -> set[tuple[int, int]]:
    """Return the pixels in which two pictures differ, by row and column."""
    if first == second:
        return set()
    rows = enumerate(zip(pixels(first), pixels(second), strict=True))
    return {(y, x) for y, (row, other) in rows for x in range(len(row)) if row[x] != other[x]}


def see_lines(browser: Browser, name: str, *curves: list[float]) -> bytes:
    """Wait until each curve is a line of a chart; return and keep the screen.

    Lines that lie over each other hide each other in part, so one of them has to be seen whole.
    """

    def are_seen() -> bool:
        heights = browser.run(_HEIGHTS)
        found = [[n for n, one in enumerate(heights) if follows(one, curve)] for curve in curves]
        return all(found) and any(
            _share_seen(browser, line) > ALMOST_ALL for of_curve in found for line in of_curve
        )

    wait_for(are_seen, what=f"lines of {curves}")
    screenshot = browser.screenshot()
    keep(name, screenshot)
    return screenshot


def keep(name: str, screenshot: bytes) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / name).write_bytes(screenshot)
