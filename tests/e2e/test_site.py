"""The documentation as a site: `make site` writes it, Chromium shows it, a broken link ends it.

No engine is needed.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import requests

from support.browser import Browser, open_browser
from support.checkout import ROOT

ENVIRONMENT = Path(sys.prefix)
#: The pages are wider than a phone where this is positive.
WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
FOUND = "return [...document.querySelectorAll('#search-results li a')].map(one => one.href)"
CATALOGUE = "return document.querySelector('a[href$=\"../index.html\"]').click()"
DOCUMENTATION = "return [...document.querySelectorAll('a[href^=docs]')].map(one => one.href)"
FILTERS = "return document.forms.length && document.querySelector('.item') !== null"

#: What is added to a page, and what the generator says of it.
NOWHERE = (
    ("docs/run.md", "[a](gone.md)", "gone.md"),
    ("docs/run.md", "[a](build.md#nowhere)", "nowhere"),
    ("docs/run.md", "[a](#no-place)", "no-place"),
    ("README.md", "[a](examples/gone.py)", "gone.py"),
    ("docs/unlisted.md", "# A page that no list has", "unlisted.md"),
)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log no requests."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    command = ["make", "-C", str(ROOT), "site", f"VENV={ENVIRONMENT}", f"SITE={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Give the address of the site: a browser lets no file read another one, as the search does."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits(site: Path, address: str, browser: Browser, width: int) -> None:
    browser.show(width)
    pages = [page.relative_to(site) for page in site.rglob("*.html")]
    assert Path("docs/build.html") in pages
    for page in pages:
        browser.open(f"{address}/{page}")
        assert browser.run(WIDER) == 0, f"{page} is wider than {width} pixels"


def test_the_search_finds_a_page(address: str, browser: Browser) -> None:
    browser.open(f"{address}/search.html?q=parameter+servers")
    found = browser.wait_for("a page that is found", FOUND)
    assert any("/docs/distributed.html" in one for one in found), found


def test_the_catalogue_is_a_click_away(address: str, browser: Browser) -> None:
    browser.open(f"{address}/docs/index.html")
    browser.run(CATALOGUE)
    browser.wait_for("the catalogue", FILTERS)
    assert browser.run("return location.href") == f"{address}/index.html"
    pages = {*browser.run(DOCUMENTATION)}
    assert len(pages) > 3
    for page in pages:
        assert requests.get(page, timeout=60).ok, page


def test_what_leads_nowhere_ends_the_build(site: Path, tmp_path: Path) -> None:
    """Each of the faults is named, with its page."""
    assert site.is_dir()  # so the generator is installed
    copy = tmp_path / "copy"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "site", "reports")
    )
    for page, text, _ in NOWHERE:
        with (copy / page).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")
    build = (f"{ENVIRONMENT}/site/bin/sphinx-build", "-qWE", "--keep-going", "-c", "docs", ".")
    command = [*build, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert len(lines) == len(NOWHERE), done.stderr
    for page, _, said in NOWHERE:
        assert any(page in line and said in line for line in lines), (page, said, lines)
