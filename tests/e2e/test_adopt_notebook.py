"""A repository of notebooks: adopt runs the cells by their kernel, and JupyterLab opens it."""

import json
import shlex
from pathlib import Path

import pytest
import requests

from support.browser import open_browser
from support.checkout import Bases, Checkout
from support.own_registry import free_port
from support.waiting import wait_for

CELLS = [
    "%matplotlib inline\nimport tensorflow as tf\nimport matplotlib.pyplot as plt",
    "total = int(tf.reduce_sum(tf.range(5)))\nprint('total', total)",
    "!echo shell $((20 + 22))",
    "open('data/points.csv').read()",
]
#: The text of all outputs of the notebook that is shown, once it has the last cell's.
OUTPUTS = """
const texts = [...document.querySelectorAll(".jp-OutputArea-output")].map(e => e.textContent);
return texts.join(" ").includes("No such file") && texts.join(" ");
"""
#: A click on the button that runs the selected cell and selects the next one, for each cell.
RUN_ALL = """
const button = [...document.querySelectorAll(".jp-NotebookPanel-toolbar button")]
    .find(e => e.title.startsWith("Run the selected cells"));
for (let i = 0; button && i < arguments[0]; i++) {
    button.dispatchEvent(new MouseEvent("mousedown", {bubbles: true, button: 0}));
}
return button !== undefined;
"""
IDLE = """
return document.querySelectorAll(".jp-Notebook .jp-CodeCell").length >= arguments[0]
    && document.querySelector(".jp-NotebookPanel-toolbar") !== null
    && /Idle/.test(document.body.innerText);
"""


@pytest.fixture
def notebook(open_folder: Path) -> Path:
    cells: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": source,
        }
        for source in CELLS
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {"nbformat": 4, "nbformat_minor": 4, "cells": cells}
    document["metadata"] = {"kernelspec": kernel}
    path = open_folder / "notebooks" / "Train.ipynb"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return path


@pytest.mark.usefixtures("notebook")
def test_notebook_is_adopted_and_opens(
    base: Bases, checkout: Checkout, open_folder: Path, tag: str
) -> None:
    base("tf-2.2-cpu-debian")
    asked = ("--tf", "2.2", "--date", "2021-12-01", "--tag", tag)
    adopted = checkout.json("adopt", str(open_folder), *asked)
    assert (adopted["outcome"], adopted["reason"]) == ("stops", "data")
    assert adopted["place"] == "notebooks/Train.ipynb:4"
    assert adopted["missing"] == []
    assert adopted["command"][:2] == ["jupyter", "lab"]

    port = free_port()
    own = ("--job", tag.removesuffix(":1"), "--code", str(open_folder), "--port", str(port))
    program = (*adopted["command"], "--port", str(port))
    line = checkout.run("run", tag, *own, "--env", "JUPYTER_TOKEN=e2e", "--", *program).stdout
    words = shlex.split(line.replace("\\\n", " "))
    checkout.printed("run", "--detach", *words[words.index("run") + 1 :])
    server = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return requests.get(f"{server}/api/status", {"token": "e2e"}, timeout=10).ok
        except requests.ConnectionError:
            return False

    wait_for(answers, what="JupyterLab")
    with open_browser() as browser:
        browser.open(f"{server}/lab/tree/notebooks/Train.ipynb?token=e2e")
        browser.wait_for("the notebook and its kernel", IDLE, len(CELLS))
        browser.wait_for("the button that runs cells", RUN_ALL, len(CELLS))
        shown = browser.wait_for("the output of the last cell", OUTPUTS)
    assert "total 10" in shown
    assert "shell 42" in shown
