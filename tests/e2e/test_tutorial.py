"""The commands of docs/tutorial.md, typed in their order; what they say is what the page says.

With IMGBUILD_WRITE_SCREENSHOTS=1, `pytest tests/e2e/test_tutorial.py -k 2.2` takes its picture.
"""

import os
import re
from functools import partial
from pathlib import Path

import pytest

from support.browser import open_browser
from support.checkout import ROOT, Bases, Checkout
from support.own_registry import free_port
from support.page_commands import IMGBUILD, PageCommand, Reader, page_commands
from support.tensorboard_page import answer, see_lines
from support.waiting import wait_for

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
def reader(checkout: Checkout, tmp_path: Path, mark: str) -> Reader:
    names = {
        **IMGBUILD,
        "--code": f"--job {mark} --code",
        r"\bname=\^train-": f"name=^{mark}-",
        r"(-f|--name) board\b": rf"\1 {mark}-board",
        r"127\.0\.0\.1:6006": f"127.0.0.1:{free_port()}",
    }
    return Reader(checkout, tmp_path, names).with_examples()


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


def _curve(url: str, run: str) -> list[float]:
    """Return a training's loss by epoch: 1.x has a run for it, 2.x one of training alone."""
    scalars = f"{url}data/plugin/scalars"
    for name, tags in (answer(f"{scalars}/tags") or {}).items():
        for tag in {"loss", "epoch_loss"} & {*tags}:
            if name.startswith(f"{run}/logs") and not name.endswith("/validation"):
                points = answer(f"{scalars}/scalars", run=name, tag=tag) or []
                by_step = {int(step): float(value) for _, step, value in points}
                return [by_step[step] for step in range(EPOCHS)] if len(by_step) == EPOCHS else []
    return []


def _watch(url: str, version: str, losses_said: dict[str, list[float]]) -> None:
    """See each run's losses in TensorBoard: as a program does, and as lines on the screen."""
    curves = {run: wait_for(partial(_curve, url, run), SECONDS, run) for run in losses_said}
    for run, said in losses_said.items():
        assert curves[run][-len(said) :] == pytest.approx(said, abs=1e-3)
    with open_browser() as browser:
        browser.open(url)
        screenshot = see_lines(browser, f"tutorial-{version}.png", *curves.values())
    if WRITE:
        PICTURE.write_bytes(screenshot)


@pytest.mark.parametrize(
    "version",
    ["2.2", pytest.param("1.15", marks=pytest.mark.nightly)],
)
def test_a_killed_run_goes_on_and_tensorboard_shows_it(
    base: Bases, reader: Reader, version: str
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
    # A user types more slowly than a test: the killed container is gone.
    ask = PageCommand("docker ps -aq --filter name=^train-")
    wait_for(lambda: not reader.type(ask), SECONDS, "the end of the killed container")
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
def test_without_fit(base: Bases, reader: Reader, command: PageCommand) -> None:
    """The page's version trains on two ranks, and goes on when it is asked for more."""
    ((_, version),) = VERSION.findall(command.line)
    base(f"tf-{version}-cpu-debian")
    reader.see(page_commands(FIT)[0])
    more = PageCommand(command.line.replace("--epochs 4", "--epochs 5"))
    first = losses(reader.see(command), 4)
    assert first[-1] < FALLS_TO * first[0]
    (last,) = losses(reader.type(more), 5)
    assert last < first[1]
