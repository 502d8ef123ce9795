"""The charts of TensorBoard's page in a browser: their lines, and whether they can be seen."""

import time
from typing import Any

import pytest
from browser import Browser
from checkout import ROOT
from png_pixels import Rows, pixels

SCREENSHOTS = ROOT / "reports" / "screenshots"
SECONDS = 60
ALMOST_ALL = 0.9
NEARLY = 90  # of 765: red, green and blue together, at the rim of a line

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
LINES = (
    ELEMENTS
    + """
    return elements.filter(element => element.matches("svg path.line")).map(path => ({
        corners: (path.getAttribute("d") || "").split(/[ML]/).filter(Boolean)
            .map(pair => pair.split(",").map(Number)),
        colour: getComputedStyle(path).stroke.match(/\\d+/g).slice(0, 3).map(Number),
        left: path.getBoundingClientRect().left,
        top: path.getBoundingClientRect().top,
    }));
"""
)
Line = dict[str, Any]


def lines(browser: Browser, points: int) -> list[Line]:
    """Return the lines with so many points."""
    return [line for line in browser.run(LINES) if len(line["corners"]) == points]


def follows(line: Line, values: list[float]) -> bool:
    """Return whether the heights of the line's corners are the values, to a chart's scale."""
    heights = [y for _, y in line["corners"]]
    if heights[0] == heights[-1]:
        return False
    scale = (heights[-1] - heights[0]) / (values[-1] - values[0])
    drawn = [values[0] + (height - heights[0]) / scale for height in heights]
    return drawn == pytest.approx(values, abs=1e-3)


def _share_seen(line: Line, screen: Rows) -> float:
    """Return at how many of its corners, of 1, the line's colour is on the screen."""
    least_x = min(x for x, _ in line["corners"])
    least_y = min(y for _, y in line["corners"])
    places = [(line["left"] + x - least_x, line["top"] + y - least_y) for x, y in line["corners"]]
    return sum(_is_near(screen, x, y, line["colour"]) for x, y in places) / len(places)


def _is_near(screen: Rows, x: float, y: float, colour: list[int]) -> bool:
    """Return whether a pixel at this place, or beside it, has the colour, or nearly so."""
    around = [
        pixel[:3]
        for row in screen[max(0, round(y) - 1) : round(y) + 2]
        for pixel in row[max(0, round(x) - 1) : round(x) + 2]
    ]
    return any(sum(map(abs, map(int.__sub__, pixel, colour))) < NEARLY for pixel in around)


def drawn(browser: Browser, points: int) -> tuple[float, bytes]:
    """Return the share of the best line that can be seen, once it is nearly all, and the screen."""
    end = time.monotonic() + SECONDS
    while True:
        screenshot = browser.screenshot()
        screen = pixels(screenshot)
        share = max((_share_seen(line, screen) for line in lines(browser, points)), default=0.0)
        if share > ALMOST_ALL or time.monotonic() > end:
            return share, screenshot
        time.sleep(0.5)


def keep(name: str, screenshot: bytes) -> None:
    """Put a screenshot where the tests leave them."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    (SCREENSHOTS / name).write_bytes(screenshot)
