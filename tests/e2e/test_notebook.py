"""JupyterLab by the recipe of docs/tensorboard.md: on one image of each Python, as a plain user."""

import shlex
from pathlib import Path

import pytest
import requests

from support.browser import open_browser
from support.checkout import ROOT, Bases, Checkout
from support.own_registry import free_port
from support.page_commands import page_commands, section
from support.waiting import wait_for

pytestmark = pytest.mark.nightly

PAGE = (ROOT / "docs" / "tensorboard.md").read_text(encoding="utf-8")
TOKEN = {"token": "e2e"}
#: The launcher's cards: one for each kernel, so that the server has answered.
LAUNCHER = 'return document.querySelector(".jp-LauncherCard") !== null;'


@pytest.mark.parametrize("version", ["1.15", "2.8", "2.15"])
def test_the_page_opens(
    base: Bases, checkout: Checkout, open_folder: Path, tag: str, version: str
) -> None:
    image, port = f"tf-{version}-cpu-debian", free_port()
    base(image)
    extend, run = (shlex.split(one.line) for one in page_commands(section(PAGE, "JupyterLab")))
    package = extend[extend.index("--pip") + 1]
    lock = ("--lock", str(open_folder / "lock.txt"))
    checkout.run("extend", image, "--pip", package, "-t", tag, "--no-test", *lock)
    program = [*run[run.index("--") :], "--port", str(port)]
    own = ("--job", tag.removesuffix(":1"), "--code", str(open_folder))
    job = (*own, "--env", f"JUPYTER_TOKEN={TOKEN['token']}")
    user = ("--user", "4321:4321", "--port", str(port))
    line = checkout.run("run", tag, *job, *user, *program).stdout
    words = shlex.split(line.replace("\\\n", " "))
    after = words.index("run") + 1
    checkout.printed("run", "--detach", *words[after:])
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return requests.get(f"{url}/api/status", TOKEN, timeout=10).ok
        except requests.ConnectionError:
            return False

    wait_for(answers, what="JupyterLab")
    with open_browser() as browser:
        browser.open(f"{url}/lab?token={TOKEN['token']}")
        browser.wait_for("JupyterLab's launcher", LAUNCHER)
    headers = {"Authorization": f"token {TOKEN['token']}"}
    made = requests.post(f"{url}/api/kernels", headers=headers, timeout=60)
    assert made.status_code == 201, made.text
