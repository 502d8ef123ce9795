"""A headless Chromium, through its driver and the W3C's WebDriver protocol.

The routes that are needed here are one request each, so no package is. It has no way out.
"""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import requests

from support.waiting import wait_for

SECONDS = 60
WIDTH, HEIGHT = 1280, 900
#: Chromium's sandbox does not start as root, and /dev/shm may be small.
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--force-device-scale-factor=1",
    f"--window-size={WIDTH},{HEIGHT}",
)
CAPABILITIES = {
    "alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": {"args": OPTIONS},
        "goog:loggingPrefs": {"performance": "ALL"},
        "timeouts": {"script": SECONDS * 1000},
    }
}
#: Source: WebDriver, "Keyboard actions".
KEYS = {"Tab": "\ue004", "Enter": "\ue006"}
READY = re.compile(r"started successfully on port (\d+)")


class Browser:
    """One tab of a running Chromium."""

    def __init__(self, driver: str) -> None:
        self._http = requests.Session()
        self._http.trust_env = False  # no proxy between this process and its own child
        made = self._ask("POST", f"{driver}/session", {"capabilities": CAPABILITIES})
        self._session = f"{driver}/session/{made['sessionId']}"

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded; its scripts may go on."""
        self._ask("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Return what JavaScript returns, run as a function's body in the page."""
        call = {"script": script, "args": list(arguments)}
        return self._ask("POST", f"{self._session}/execute/sync", call)

    def wait_for(self, what: str, script: str, *arguments: object) -> Any:
        """Return what JavaScript returns as soon as it is true; fails the test in the end."""
        return wait_for(lambda: self.run(script, *arguments), SECONDS, what)

    def wait_for_answer(self, page: str, url: str, status: int) -> None:
        """Open a page and wait until a server has given this answer; fails the test in the end."""
        self.open(page)
        wait_for(lambda: (url, status) in self.answers(), SECONDS, f"{status} for {url}")

    def command(self, name: str, **parameters: object) -> Any:
        """Give a command of the DevTools protocol, such as `Emulation.setEmulatedMedia`."""
        call = {"cmd": name, "params": parameters}
        return self._ask("POST", f"{self._session}/goog/cdp/execute", call)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, where the focus is: `Tab` and so on, or characters."""
        for key in keys:
            code = KEYS.get(key, key)
            down = {"type": "keyDown", "value": code}
            pressed = {"type": "key", "id": "keys", "actions": [down, {**down, "type": "keyUp"}]}
            self._ask("POST", f"{self._session}/actions", {"actions": [pressed]})

    def show(
        self, width: int, height: int = HEIGHT, *, dark: bool = False, still: bool = True
    ) -> None:
        """Make the page so large, in a light or dark colour scheme; if `still`, without motion."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if still else ""}
        self.command("Emulation.setEmulatedMedia", features=[scheme, motion])

    def screenshot(self) -> bytes:
        """Return what can be seen, as a PNG file: 1280 pixels wide, or as `show` said."""
        return base64.b64decode(self._ask("GET", f"{self._session}/screenshot"))

    def answers(self) -> list[tuple[str, int]]:
        """Return address and status (0: none) of what servers have answered since the last call."""
        entries = self._ask("POST", f"{self._session}/se/log", {"type": "performance"})
        asked, found = dict[str, str](), list[tuple[str, int]]()
        for event in (json.loads(entry["message"])["message"] for entry in entries):
            parameters = event["params"]
            if event["method"] == "Network.requestWillBeSent":
                asked[parameters["requestId"]] = parameters["request"]["url"]
            elif event["method"] == "Network.responseReceived":
                found.append((parameters["response"]["url"], parameters["response"]["status"]))
            elif event["method"] == "Network.loadingFailed":
                found.append((asked.get(parameters["requestId"], "unknown"), 0))
        return [(url, status) for url, status in found if not url.startswith(("data:", "blob:"))]

    def close(self) -> None:
        self._ask("DELETE", self._session)

    def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        response = self._http.request(method, url, json=body, timeout=2 * SECONDS)
        value = response.json()["value"]
        assert response.ok, f"{url}: {value}"
        return value


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium's driver and a browser; both end with the block."""
    program = shutil.which("chromedriver")
    if program is None:
        pytest.fail("no chromedriver on PATH: `make browser` installs it", pytrace=False)
    with subprocess.Popen([program, "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        try:
            with closing(Browser(f"http://127.0.0.1:{_port_of(driver)}")) as browser:
                yield browser
        finally:
            driver.terminate()


def _port_of(driver: subprocess.Popen[str]) -> int:
    for line in driver.stdout or ():
        if found := READY.search(line):
            return int(found[1])
    pytest.fail("chromedriver did not start", pytrace=False)
