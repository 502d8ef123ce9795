"""TensorBoard's page, served from inside the images and opened in a real browser without internet.

The screenshots are kept in `reports/screenshots/`.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import requests
from browser import Browser, open_browser
from checkout import ROOT, Checkout
from path_proxy import PREFIX, path_proxy
from tensorboard_page import ALMOST_ALL, ELEMENTS, drawn, follows, keep, lines

#: Three generations of the page; no other test of `make test` needs the last one's image.
VERSIONS = ("1.10", "1.15", pytest.param("2.3", marks=pytest.mark.nightly))
#: Whose projector's tab stays empty behind a proxy's path.
FAULTY = "1.15"
PROGRAMS = ROOT / "tests" / "image" / "programs"
PORT = 6006
LOGDIR = "/tmp/logs"  # noqa: S108 - in the container
SECONDS = 60
VALUES = [10.0 / (step + 10) for step in range(60)]  # programs/events_curve.py

#: Whether the projector says how many points it shows, and how much of their variance that is.
PROJECTED = (
    ELEMENTS
    + """
    const text = selector => (elements.find(e => e.matches(selector)) || {}).textContent || "";
    return text("span.numDataPoints").trim().endsWith(arguments[0])
        && /[0-9]%/.test(text("#total-variance"));
"""
)
#: Whether there is a projector at all.
PROJECTOR = ELEMENTS + 'return elements.some(element => element.matches("span.numDataPoints"));'
POINTS = "4"  # of programs/events_curve.py


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def image(checkout: Checkout) -> Callable[[str], str]:
    """Return how to build a version if it is missing, as a user does, and get its name."""

    @cache
    def get(version: str) -> str:
        result = checkout.run("build", "--tf", version, "--stack", "debian", "--json")
        (entry,) = json.loads(result.stdout)
        return str(entry["tags"][0])

    return get


@contextmanager
def served(checkout: Checkout, image: str) -> Iterator[int]:
    """Serve a curve from inside the image; give the port of this machine that leads to it."""
    name = f"imgbuild-page-{uuid.uuid4().hex[:12]}"
    run = ("run", "--detach", "--name", name, f"--publish=127.0.0.1::{PORT}", image)
    serve = ("tensorboard", "--logdir", LOGDIR, "--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104
    try:
        _docker(checkout, *run, *serve, "--reload_interval", "1")
        _docker(checkout, "cp", str(PROGRAMS), f"{name}:/programs")
        _docker(checkout, "exec", name, "python", "/programs/events_curve.py", LOGDIR)
        port = int(_docker(checkout, "port", name, str(PORT)).split()[0].rpartition(":")[2])
        _wait_for_points(port)
        yield port
    finally:
        checkout.docker("rm", "--force", "--volumes", name)


def _docker(checkout: Checkout, *arguments: str) -> str:
    result = checkout.docker(*arguments, code=0)
    return result.stdout


def _wait_for_points(port: int) -> None:
    """Wait until the server has loaded the curve: the page asks once."""
    url = f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?run=training&tag=loss"
    http = requests.Session()
    http.trust_env = False
    end, points = time.monotonic() + SECONDS, 0
    while points < len(VALUES):
        assert time.monotonic() < end, f"{points} points after {SECONDS} s"
        time.sleep(0.2)
        try:
            response = http.get(url, timeout=10)
        except requests.ConnectionError:
            continue
        points = len(response.json()) if response.ok else 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_scalar_chart_is_drawn(
    checkout: Checkout, browser: Browser, image: Callable[[str], str], version: str
) -> None:
    """A line of the chart is the data, and its colour is on the screen all along it.

    The page is complete without internet: it asks for nothing but what the container serves.
    """
    browser.open("about:blank")  # the page of an earlier container goes on asking its port
    browser.answers()
    with served(checkout, image(version)) as port:
        url = f"http://127.0.0.1:{port}/"
        browser.open(url)
        share, screenshot = drawn(browser, len(VALUES))
        keep(f"tensorboard-{version}.png", screenshot)
        found, answers = lines(browser, len(VALUES)), browser.answers()
    assert share > ALMOST_ALL, f"{share:.0%} of the line can be seen, of {len(found)} lines"
    assert any(follows(line, VALUES) for line in found), f"no line is the data: {found}"
    assert (url, 200) in answers
    assert [pair for pair in answers if not pair[0].startswith(url) or pair[1] != 200] == []


def test_the_projectors_fault_behind_a_path_and_the_way_round_it(
    checkout: Checkout, browser: Browser, image: Callable[[str], str]
) -> None:
    """The tab asks for its code at the proxy's root and stays empty; its own page has it all."""
    with served(checkout, image(FAULTY)) as port, path_proxy(port) as url:
        root = url.removesuffix(f"{PREFIX}/")
        browser.wait_for_answer(f"{url}#projector", f"{root}/data/plugin/projector/index.js", 404)
        keep(f"projector-{FAULTY}-fault.png", browser.screenshot())
        assert not browser.run(PROJECTOR)
        browser.open(f"{url}data/plugin/projector/projector_binary.html")
        browser.wait_for("the projector's points", PROJECTED, POINTS)
        keep(f"projector-{FAULTY}-way-round.png", browser.screenshot())


@pytest.mark.nightly
def test_the_projectors_tab_needs_no_way_round_in_2_3(
    checkout: Checkout, browser: Browser, image: Callable[[str], str]
) -> None:
    """The same path, the same proxy, and the tab has its code."""
    with served(checkout, image("2.3")) as port, path_proxy(port) as url:
        browser.open(f"{url}#projector")
        browser.wait_for("the projector's points", PROJECTED, POINTS)
