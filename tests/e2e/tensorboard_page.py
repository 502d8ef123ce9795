"""The charts of TensorBoard's page in a browser: their lines, and whether they can be seen."""

import time
from itertools import pairwise
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
        chart: path.ownerSVGElement.getBoundingClientRect().toJSON(),
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
    """Return at how many places along it, of 1, the line's colour is on the screen.

    What lies outside of its chart counts as no place: TensorBoard leaves outliers out of the scale.
    """
    least_x = min(x for x, _ in line["corners"])
    least_y = min(y for _, y in line["corners"])
    right, down = line["left"] - least_x, line["top"] - least_y
    places = [(right + x, down + y) for x, y in _places(line["corners"])]
    inside = [place for place in places if _is_inside(line["chart"], *place)]
    seen = sum(_is_near(screen, x, y, line["colour"]) for x, y in inside)
    return seen / len(inside) if 2 * len(inside) > len(places) else 0.0


def _places(corners: list[list[float]]) -> list[list[float]]:
    """Return the corners and nine places between each two: where lines meet, one hides others."""
    between = [
        [x + (next_x - x) * tenth / 10, y + (next_y - y) * tenth / 10]
        for (x, y), (next_x, next_y) in pairwise(corners)
        for tenth in range(10)
    ]
    return [*between, corners[-1]]


def _is_inside(chart: dict[str, float], x: float, y: float) -> bool:
    return chart["left"] <= x < chart["right"] and chart["top"] <= y < chart["bottom"]


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
