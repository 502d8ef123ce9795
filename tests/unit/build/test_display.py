"""What a build shows: how far images are; on a terminal, in a log, for one image and for many."""

import io
from collections.abc import Iterator
from typing import Self

import pytest
from rich.console import Console

from imgbuild.build.display import BuildDisplay
from imgbuild.core.events import ImageState, Phase
from imgbuild.core.outcome import Outcome
from imgbuild.engine.steps import Step, StepState

RUN, EXPORT = "[horovod 3/4] RUN pip install horovod", "exporting to image"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Shown:
    """A display, what it writes, and its clock."""

    def __init__(self, *images: str, stream: io.StringIO | None = None) -> None:
        self.now = 0.0
        self.stream = stream or io.StringIO()
        self.display = BuildDisplay(images, self.stream, lambda: self.now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.display.__exit__()

    @property
    def lines(self) -> list[str]:
        return [" ".join(line.split()) for line in self.stream.getvalue().splitlines()]

    def step(
        self, image: str, state: StepState, name: str = RUN, number: int = 1, elapsed: float = 0
    ) -> None:
        since = self.now if state == "running" else None
        self.display.show_step(image, Step(number, name, state, elapsed, since=since))

    def state(
        self, image: str, state: Phase | Outcome, text: str = "", *, quiet: bool = False
    ) -> None:
        self.display.show_state(ImageState(image, state, text, quiet))

    def picture(self, height: int = 40) -> list[str]:
        stream = io.StringIO()
        Console(file=stream, width=100).print(self.display.picture(height))
        return stream.getvalue().rstrip("\n").splitlines()


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def pair() -> Iterator[Shown]:
    with Shown("a", "b") as shown:
        yield shown


@pytest.mark.parametrize(("stream", "variable"), [(io.StringIO(), "NO_CI"), (Terminal(), "CI")])
def test_display_writes_lines_on_ci_and_off_a_terminal(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, variable: str
) -> None:
    monkeypatch.setenv(variable, "true")
    with Shown("a", stream=stream) as shown:
        shown.step("a", "running")
        shown.step("a", "done", elapsed=12.3)
        shown.step("a", "failed", "[internal] load .dockerignore", 2)
        shown.step("another", "running")
    assert shown.lines == [
        "a starts horovod 3/4 RUN pip install horovod",
        "a 12.3s horovod 3/4 RUN pip install horovod",
        "a failed internal load .dockerignore",
    ]


def test_of_many_images_states_and_long_steps_are_lines(pair: Shown) -> None:
    pair.state("a", Phase.BUILDING)
    pair.state("b", Phase.BUILDING, "on farm")
    pair.step("a", "running")
    pair.step("a", "done", elapsed=12.3)
    pair.step("a", "done", "[x 1/1] COPY a b", 2, 0.3)
    pair.state("a", Phase.BUILT, "in 12.3s")
    pair.step("b", "failed")
    pair.state("b", Outcome.FAILED)
    pair.state("a", Phase.TESTING, "pins, horovod")
    pair.state("a", Phase.TESTING, "horovod 0/9")
    pair.state("a", Phase.TESTING, "FAILED horovod: test_x")
    pair.state("a", Outcome.TAGGED)
    assert pair.lines == [
        "a building",
        "b building on farm",
        "a 12.3s horovod 3/4 RUN pip install horovod",
        "a built in 12.3s",
        "b failed horovod 3/4 RUN pip install horovod",
        "b failed",
        "a testing pins, horovod",
        "a testing FAILED horovod: test_x",
        "a tagged",
    ]


def test_an_image_with_nothing_to_do_is_no_line(pair: Shown) -> None:
    pair.state("a", Outcome.UP_TO_DATE)
    pair.step("b", "running")
    assert pair.lines == ["b starts horovod 3/4 RUN pip install horovod"], "b is alone"


def test_after_a_quiet_minute_there_is_a_line() -> None:
    with Shown("a", "b", "c") as shown:
        shown.state("a", Phase.BUILDING)
        shown.step("a", "running")
        for now in (59, 100, 100):
            shown.now = now
            shown.display.beat()
    longest = "longest: horovod 3/4 RUN pip install horovod of a 1m40s"
    assert shown.lines[1:] == [f"0 of 3 done, 1 building, 2 waiting, 1m40s, {longest}"]


@pytest.mark.parametrize("colour", [True, False])
def test_on_a_terminal_there_is_a_line_for_each_image_and_a_bar(
    monkeypatch: pytest.MonkeyPatch, colour: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "" if colour else "1")
    with Shown("a", "b", "c", stream=Terminal()) as shown:
        shown.state("a", Phase.BUILDING)
        shown.step("a", "running")
        shown.state("b", Phase.TESTING, "a [bold]suite")
        shown.state("c", Outcome.FAILED)
    last = shown.stream.getvalue()
    assert ("31m" in last) is colour
    for said in ("building", "horovod 3/4 RUN", "[bold]suite", "1 of 3 done"):
        assert said in last
    assert "starts" not in last


def test_display_shows_urgent_images_first() -> None:
    images = [f"tf-{number}" for number in range(34)]
    with Shown(*images) as shown:
        for image in images[:10]:
            shown.state(image, Outcome.TAGGED)
        shown.state(images[30], Phase.BUILDING)
        shown.step(images[30], "running", f"{RUN} {'x' * 300}")
        shown.state(images[33], Outcome.FAILED)
        lines = shown.picture(6)
    assert len(lines) == 5
    assert any(images[33] in line and "failed" in line for line in lines)
    assert any(images[30] in line and "building" in line for line in lines)
    assert " 11 of 34 done, 1 building, 22 waiting, 1 failed, " in lines[-1]


def test_the_step_shown_is_the_oldest_that_runs(pair: Shown) -> None:
    pair.state("a", Phase.BUILDING)
    pair.step("a", "running")
    pair.step("a", "running", "[final 1/1] COPY a", 2)
    assert "RUN pip install horovod" in pair.picture()[0]
    pair.step("a", "done", elapsed=3.0)
    assert "COPY a" in pair.picture()[0]
    pair.state("a", Phase.TESTING)
    pair.state("a", Phase.TESTING, "pins 3/9", quiet=True)
    assert "pins 3/9" in pair.picture()[0]


def test_display_times_an_image_from_build_to_suites(pair: Shown) -> None:
    def clock() -> str:
        return pair.picture()[0].split()[2]

    for pair.now, state in ((10, Phase.BUILDING), (40, Phase.TESTING)):
        pair.state("a", state)
    pair.now = 50
    assert clock() == "40.0s"
    for pair.now, outcome in ((55, Outcome.PASSED), (60, Outcome.TAGGED)):
        pair.state("a", outcome)
    pair.now = 99
    assert clock() == "45.0s"
