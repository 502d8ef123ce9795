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
_ALONE = f"""
    {_LINES}
    const line = lines[arguments[0]];
    for (const other of lines) other.style.visibility = "hidden";
    if (!line) return 0;  // the page is drawing its charts anew
    line.style.visibility = arguments[1];
    return line.getBoundingClientRect().width;
"""
_SHOW_ALL = f'{_LINES} for (const line of lines) line.style.visibility = "";'


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
    """Return along how much of a line's width, of 1, the screen changes with it.

    All other lines are hidden meanwhile, because lines may cover each other. A pixel counts if it
    changes when the line is shown and again when it is hidden. A pixel that changes only once is no
    part of the line: the page is being drawn, or the browser smooths other lines anew.
    """
    browser.run(_ALONE, line, "hidden")
    before = pixels(browser.screenshot())
    width: float = browser.run(_ALONE, line, "visible")
    shown = pixels(browser.screenshot())
    browser.run(_ALONE, line, "hidden")
    after = pixels(browser.screenshot())
    browser.run(_SHOW_ALL)
    columns = {
        x
        for rows in zip(before, shown, after, strict=True)
        for x, (without, seen, again) in enumerate(zip(*rows, strict=True))
        if seen not in (without, again)
    }
    return len(columns) / width if width else 0.0


def see_lines(browser: Browser, name: str, *curves: list[float]) -> bytes:
    """Wait until each curve is a line of a chart that the screen shows; return and keep that."""

    def is_seen(curve: list[float]) -> bool:
        heights = browser.run(_HEIGHTS)
        lines = [number for number, line in enumerate(heights) if follows(line, curve)]
        return any(_share_seen(browser, line) > ALMOST_ALL for line in lines)

    def are_seen() -> bool:
        return all(is_seen(curve) for curve in curves)

    wait_for(are_seen, what=f"lines of {curves}")
    screenshot = browser.screenshot()
    keep(name, screenshot)
    return screenshot


def keep(name: str, screenshot: bytes) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / name).write_bytes(screenshot)
