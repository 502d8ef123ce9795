"""The commands of docs/tutorial.md, typed in their order; what they say is what the page says.

`IMGBUILD_WRITE_SCREENSHOTS=1 .venv/bin/pytest tests/e2e/test_tutorial.py -k 2.2` takes the page's
picture again.
"""

import os
import re
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
from page_commands import PageCommand, Reader, page_commands
from tensorboard_page import ALMOST_ALL, drawn, follows, keep, lines

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FIT, _, OTHERS = PAGE.partition("## Without Keras' `fit`")
WRITE = os.environ.get("IMGBUILD_WRITE_SCREENSHOTS")
PICTURE = ROOT / "docs" / "screenshots" / "tutorial-tensorboard.png"
IMAGE = re.compile(r"imgbuild/tensorflow:(\d+\.\d+)-cpu-debian")
LOSS = re.compile(r"epoch (\d+)/(\d+): loss (\d+\.\d+)")
BEGIN = re.compile(r"(\d) rank\(s\), from epoch (\d+)")
RIGHT = re.compile(r"(\d+\.\d)% of the test digits are right")
NUMBER = re.compile(r"\d+(\.\d+)?")
EPOCHS = 6
#: The last loss is far below the first; a network that knows nothing finds a tenth of the digits.
FALLS_TO, LEAST_RIGHT = 0.35, 85.0
SECONDS = 60


@pytest.fixture
def reader(checkout: Checkout, tmp_path: Path) -> Iterator[Reader]:
    mark = uuid.uuid4().hex[:12]
    names = {
        r"--name (train|board)": rf"--name imgbuild-e2e-\1-{mark}",
        r"\b(logs|kill|rm|rm -f) (train|board)\b": rf"\1 imgbuild-e2e-\2-{mark}",
        r"127\.0\.0\.1:6006": f"127.0.0.1:{free_port()}",
    }
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    made = Reader(checkout, tmp_path, names)
    yield made
    for name in ("train", "board"):
        made.type(PageCommand(f"docker rm -f {name}; true"))


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


def _forms(said: str) -> set[str]:
    """Return the lines without their numbers, which differ from run to run."""
    return {NUMBER.sub("#", line) for line in said.splitlines()}


def _typed(reader: Reader, command: PageCommand) -> str:
    printed = reader.type(command)
    if command.prints:
        assert _forms(printed) == _forms("\n".join(command.prints))
    return printed


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


@pytest.mark.parametrize(
    "version",
    ["2.2", pytest.param("1.15", marks=pytest.mark.nightly)],
)
def test_a_killed_run_goes_on_and_tensorboard_shows_it(
    base: Callable[[str], Base], reader: Reader, version: str
) -> None:
    reader.names[IMAGE.pattern] = base(f"tf-{version}-cpu-debian").tag
    alone, start, wait, kill, again, serve, end = page_commands(FIT)
    one = losses(_typed(reader, alone), EPOCHS)
    assert len(one) == EPOCHS
    assert one[-1] < FALLS_TO * one[0]
    for command in (start, wait, kill):
        _typed(reader, command)
    whole = {path.name for path in (reader.folder / "runs" / "two").glob("epoch-???.h5")}
    printed = _typed(reader, again)
    assert printed.startswith(f"2 rank(s), from epoch {len(whole) + 1}\n")
    two = losses(printed, EPOCHS)
    assert 2 <= len(whole) == EPOCHS - len(two) < EPOCHS
    assert two[-1] < FALLS_TO * one[0]
    _typed(reader, serve)
    (url,) = re.findall(r"<(http://\S+)>", FIT)
    _watch(reader.here(url), version, {"one": one, "two": two})
    _typed(reader, end)


@pytest.mark.nightly
@pytest.mark.parametrize("command", page_commands(OTHERS), ids=lambda one: one.line.split()[-5])
def test_without_fit(base: Callable[[str], Base], reader: Reader, command: PageCommand) -> None:
    """The page's version trains on two ranks, and goes on when it is asked for more."""
    (version,) = IMAGE.findall(command.line)
    assert base(f"tf-{version}-cpu-debian").tag in command.line
    first = losses(_typed(reader, command), 4)
    more = PageCommand(command.line.replace("--epochs 4", "--epochs 5"))
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
