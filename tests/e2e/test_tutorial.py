"""The commands of docs/tutorial.md, typed in their order; what they say is what the page says.

`IMGBUILD_WRITE_SCREENSHOTS=1 .venv/bin/pytest tests/e2e/test_tutorial.py -k 2.2` takes the page's
picture again.
"""

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from browser import open_browser
from checkout import ROOT, Base, Checkout
from own_registry import free_port
from page_commands import IMGBUILD, PageCommand, Reader, page_commands
from tensorboard_page import ALMOST_ALL, drawn, follows, keep, lines

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FIT, _, OTHERS = PAGE.partition("## Without Keras' `fit`")
WRITE = os.environ.get("IMGBUILD_WRITE_SCREENSHOTS")
PICTURE = ROOT / "docs" / "screenshots" / "tutorial-tensorboard.png"
VERSION = re.compile(r"(--tf |imgbuild/tensorflow:)(\d+\.\d+)")
LOSS = re.compile(r"epoch (\d+)/(\d+): loss (\d+\.\d+)")
BEGIN = re.compile(r"(\d) rank\(s\), from epoch (\d+)")
RIGHT = re.compile(r"(\d+\.\d)% of the test digits are right")
EPOCHS = 6
#: The last loss is far below the first; a network that knows nothing finds a tenth of the digits.
FALLS_TO, LEAST_RIGHT = 0.35, 85.0
SECONDS = 60


@pytest.fixture
def reader(checkout: Checkout, tmp_path: Path) -> Iterator[Reader]:
    mark = uuid.uuid4().hex[:12]
    names = {
        **IMGBUILD,
        "--code": f"--job imgbuild-e2e-{mark} --code",
        r"\bname=\^train-": f"name=^imgbuild-e2e-{mark}-",
        r"(-f|--name) board\b": rf"\1 imgbuild-e2e-{mark}-board",
        r"127\.0\.0\.1:6006": f"127.0.0.1:{free_port()}",
    }
    shutil.copytree(ROOT / "examples" / "tutorial", tmp_path / "examples" / "tutorial")
    made = Reader(checkout, tmp_path, names)
    yield made
    started = checkout.docker("ps", "-aq", f"--filter=name=imgbuild-e2e-{mark}").stdout.split()
    checkout.docker("rm", "--force", "--volumes", *started)


def losses(printed: str, epochs: int) -> list[float]:
    """Return the losses of a run that went on to its last epoch; fails the test for any other."""
    begin, *each, end = printed.splitlines()
    first, right = BEGIN.fullmatch(begin), RIGHT.fullmatch(end)
    assert first, printed
    assert right, printed
    assert float(right[1]) >= LEAST_RIGHT
    found = [LOSS.fullmatch(line) for line in each]
    said = [(int(one[1]), int(one[2])) for one in found if one]
    assert said == [(epoch, epochs) for epoch in range(int(first[2]), epochs + 1)], printed
    return [float(one[3]) for one in found if one]


class Board:
    """What the page's TensorBoard says to programs."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = requests.Session()
        self._http.trust_env = False

    def curve(self, run: str) -> list[float]:
        """Return a run's loss of each epoch, once it has all of them."""
        end, found = time.monotonic() + SECONDS, dict[int, float]()
        while len(found) < EPOCHS:
            assert time.monotonic() < end, f"{run}: {found} after {SECONDS} s"
            time.sleep(0.2)
            try:
                found = self._curve(run)
            except requests.ConnectionError:
                continue
        assert sorted(found) == list(range(EPOCHS))
        return [found[step] for step in sorted(found)]

    def _curve(self, run: str) -> dict[int, float]:
        """Return a training's loss by step; 1.x has a run for it, 2.x one of training alone."""
        for name, tags in self._json("tags").items():
            for tag in {"loss", "epoch_loss"} & set(tags):
                if name.startswith(f"{run}/logs") and not name.endswith("/validation"):
                    points = self._json("scalars", run=name, tag=tag)
                    return {int(step): float(value) for _, step, value in points}
        return {}

    def _json(self, route: str, **parameters: str) -> Any:
        url = f"{self.url}data/plugin/scalars/{route}"
        return self._http.get(url, params=parameters, timeout=10).json()


def _watch(url: str, version: str, losses_said: dict[str, list[float]]) -> None:
    """See each run's losses in TensorBoard: as a program does, and as lines on the screen."""
    board = Board(url)
    curves = {run: board.curve(run) for run in losses_said}
    for run, said in losses_said.items():
        assert curves[run][-len(said) :] == pytest.approx(said, abs=1e-3)
    with open_browser() as browser:
        browser.open(url)
        share, screenshot = drawn(browser, EPOCHS)
        there = lines(browser, EPOCHS)
    keep(f"tutorial-{version}.png", screenshot)
    if WRITE:
        PICTURE.write_bytes(screenshot)
    assert share > ALMOST_ALL
    for curve in curves.values():
        assert any(follows(line, curve) for line in there)


def _wait_for_the_end(reader: Reader) -> None:
    """Wait until the killed container is gone: a user types more slowly than a test."""
    ask = PageCommand("docker ps -aq --filter name=^train-")
    end = time.monotonic() + SECONDS
    while reader.type(ask):
        assert time.monotonic() < end, "a killed container is still there"
        time.sleep(0.2)


@pytest.mark.parametrize(
    "version",
    ["2.2", pytest.param("1.15", marks=pytest.mark.nightly)],
)
def test_a_killed_run_goes_on_and_tensorboard_shows_it(
    base: Callable[[str], Base], reader: Reader, version: str
) -> None:
    base(f"tf-{version}-cpu-debian")
    reader.names[VERSION.pattern] = rf"\g<1>{version}"
    make, alone, start, wait, kill, again, serve, end = page_commands(FIT)
    reader.see(make)
    one = losses(reader.see(alone), EPOCHS)
    assert len(one) == EPOCHS
    assert one[-1] < FALLS_TO * one[0]
    for command in (start, wait, kill):
        reader.see(command)
    _wait_for_the_end(reader)
    whole = {path.name for path in (reader.folder / "runs" / "two").glob("epoch-???.h5")}
    printed = reader.see(again)
    assert printed.startswith(f"2 rank(s), from epoch {len(whole) + 1}\n")
    two = losses(printed, EPOCHS)
    assert 2 <= len(whole) == EPOCHS - len(two) < EPOCHS
    assert two[-1] < FALLS_TO * one[0]
    reader.see(serve)
    (url,) = re.findall(r"<(http://\S+)>", FIT)
    _watch(reader.here(url), version, {"one": one, "two": two})
    reader.see(end)


@pytest.mark.nightly
@pytest.mark.parametrize("command", page_commands(OTHERS), ids=lambda one: one.line.split()[-3])
def test_without_fit(base: Callable[[str], Base], reader: Reader, command: PageCommand) -> None:
    """The page's version trains on two ranks, and goes on when it is asked for more."""
    ((_, version),) = VERSION.findall(command.line)
    base(f"tf-{version}-cpu-debian")
    reader.see(page_commands(FIT)[0])
    more = PageCommand(command.line.replace("--epochs 4", "--epochs 5"))
    first = losses(reader.see(command), 4)
    assert first[-1] < FALLS_TO * first[0]
    (last,) = losses(reader.type(more), 5)
    assert last < first[1]


@pytest.mark.parametrize(
    "printed",
    [
        "2 rank(s), from epoch 1\nepoch 2/2: loss 1.0\n97.5% of the test digits are right",
        "2 rank(s), from epoch 1\nepoch 1/2: loss 1.0\n97.5% of the test digits are right",
        "2 rank(s), from epoch 2\nepoch 2/2: loss 1.0\n10.1% of the test digits are right",
        "2 rank(s), from epoch 2\nepoch 2/2: loss 1.0",
    ],
)
def test_a_run_that_is_not_whole_is_seen(printed: str) -> None:
    with pytest.raises(AssertionError):
        losses(printed, 2)
