"""TensorBoard's page, served from inside the images and opened in a real browser."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.browser import Browser, open_browser
from support.checkout import ROOT, Bases, Checkout
from support.fault_proxy import fault_proxy
from support.tensorboard_page import ELEMENTS, answer, keep, see_lines
from support.waiting import wait_for

#: Three generations of the page; no other test of `make test` needs the last one's image.
VERSIONS = ("1.10", "1.15", pytest.param("2.3", marks=pytest.mark.nightly))
#: Whose projector's tab stays empty behind a proxy's path.
FAULTY = "1.15"
PROGRAMS = ROOT / "tests" / "image" / "programs"
PORT, PREFIX = 6006, "/proxy"
LOGDIR = "/tmp/logs"  # noqa: S108 - in the container
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


@contextmanager
def served(checkout: Checkout, image: str) -> Iterator[int]:
    """Serve a curve from inside the image; give the port of this machine that leads to it."""
    name = f"imgbuild-page-{uuid.uuid4().hex[:12]}"
    run = ("run", "--detach", "--name", name, f"--publish=127.0.0.1::{PORT}", image)
    serve = ("tensorboard", "--logdir", LOGDIR, "--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104
    try:
        checkout.printed(*run, *serve, "--reload_interval", "1")
        checkout.printed("cp", str(PROGRAMS), f"{name}:/programs")
        checkout.printed("exec", name, "python", "/programs/events_curve.py", LOGDIR)
        port = int(checkout.printed("port", name, str(PORT)).split()[0].rpartition(":")[2])
        scalars = f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?run=training&tag=loss"
        # The page asks once.
        wait_for(lambda: len(answer(scalars) or ()) == len(VALUES), what="the whole curve")
        yield port
    finally:
        checkout.docker("rm", "--force", "--volumes", name)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_scalar_chart_is_drawn(
    checkout: Checkout, browser: Browser, base: Bases, version: str
) -> None:
    """And the page asks for nothing but what the container serves: it is whole without internet."""
    browser.open("about:blank")  # the page of an earlier container goes on asking its port
    browser.answers()
    with served(checkout, base(f"tf-{version}-cpu-debian").tag) as port:
        url = f"http://127.0.0.1:{port}/"
        browser.open(url)
        see_lines(browser, f"tensorboard-{version}.png", VALUES)
        answers = browser.answers()
    assert (url, 200) in answers
    assert [pair for pair in answers if not pair[0].startswith(url) or pair[1] != 200] == []


@pytest.mark.parametrize("version", [FAULTY, pytest.param("2.3", marks=pytest.mark.nightly)])
def test_the_projectors_tab_behind_a_path(
    checkout: Checkout, browser: Browser, base: Bases, version: str
) -> None:
    """Of one version it asks at the proxy's root, and stays empty; its own page is a way round."""
    with (
        served(checkout, base(f"tf-{version}-cpu-debian").tag) as port,
        fault_proxy(port, PREFIX) as proxy,
    ):
        root = f"http://{proxy.host}"
        page = f"{root}{PREFIX}/#projector"
        if version == FAULTY:
            browser.wait_for_answer(page, f"{root}/data/plugin/projector/index.js", 404)
            keep(f"projector-{FAULTY}-fault.png", browser.screenshot())
            assert not browser.run(PROJECTOR)
            page = f"{root}{PREFIX}/data/plugin/projector/projector_binary.html"
        browser.open(page)
        browser.wait_for("the projector's points", PROJECTED, POINTS)
        keep(f"projector-{version}.png", browser.screenshot())
