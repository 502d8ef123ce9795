"""What a build shows: how far images are; on a terminal, in a log, for one image and for many."""

import io

import pytest
from rich.console import Console

from imgbuild.build.display import BuildDisplay, picture
from imgbuild.build.status import BuildStatus
from imgbuild.engine.progress import BakeBegun, BuildEvent, StepState, Transfer
from imgbuild.events import Event, ImagesPlanned, ImageState, State

RUN, EXPORT = "[horovod 3/4] RUN pip install horovod", "exporting to image"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def event(
    state: StepState, step: str = RUN, number: int = 1, elapsed: float = 0, image: str = "a"
) -> BuildEvent:
    return BuildEvent(image, step, state, elapsed, number)


def shown(images: list[str], *events: Event, stream: io.StringIO | None = None) -> list[str]:
    """Return the lines that the events make, each with single spaces."""
    stream = stream or io.StringIO()
    with BuildDisplay(images, stream) as display:
        for one in events:
            display.on_event(one)
    return [" ".join(line.split()) for line in stream.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.parametrize(("stream", "variable"), [(io.StringIO(), "NO_CI"), (Terminal(), "CI")])
def test_off_a_terminal_and_on_ci_the_steps_of_one_image_are_lines(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, variable: str
) -> None:
    monkeypatch.setenv(variable, "true")
    load, done = "[internal] load .dockerignore", event("done", elapsed=12.3)
    events = (event("running"), done, done, event("done", load, 2), event("failed", load, 2))
    assert shown(["a"], *events, stream=stream) == [
        "a starts horovod 3/4 RUN pip install horovod",
        "a 12.3s horovod 3/4 RUN pip install horovod",
        "a failed internal load .dockerignore",
    ]


def test_of_many_images_states_and_long_steps_are_lines() -> None:
    lines = shown(
        ["a", "b"],
        event("running"),
        event("running", image="b"),
        event("done", elapsed=12.3),
        event("done", elapsed=12.3, image="b"),
        event("done", "[x 1/1] COPY a b", 2, 0.3),
        event("done", EXPORT, 3, 12.3),
        event("failed", image="b"),
        ImageState("b", State.FAILED),
        ImageState("a", State.TESTING, "pins, horovod"),
        ImageState("a", State.TESTING, "horovod 0/9"),
        ImageState("a", State.TESTING, "FAILED horovod: test_x"),
        ImageState("a", State.TAGGED),
    )
    assert lines == [
        "a building",
        "b building",
        "a 12.3s horovod 3/4 RUN pip install horovod (and for 1 more)",
        "a 12.3s exporting to image",
        "a built in 12.3s",
        "b failed horovod 3/4 RUN pip install horovod",
        "a testing pins, horovod",
        "a testing FAILED horovod: test_x",
        "a tagged",
    ]


def test_image_without_work_has_no_line() -> None:
    planned = ImagesPlanned({"a": "build", "b": "nothing"})
    lines = shown(["a", "b"], planned, ImageState("b", State.UP_TO_DATE), event("running"))
    assert lines == ["a starts horovod 3/4 RUN pip install horovod"]


def test_after_a_quiet_minute_there_is_a_line() -> None:
    now = [0.0]
    stream = io.StringIO()
    with BuildDisplay(["a", "b", "c"], stream, lambda: now[0]) as display:
        display.on_event(event("running"))
        for now[0] in (59, 100, 100):
            display.beat()
    longest = "longest: horovod 3/4 RUN pip install horovod of a 1m40s"
    line = f"0 of 3 done, 1 building, 2 waiting, 0 of 1 steps, 1m40s, {longest}"
    assert stream.getvalue().splitlines()[1:] == [line]


@pytest.mark.parametrize("colour", [True, False])
def test_on_a_terminal_there_is_a_line_for_each_image_and_a_bar(
    monkeypatch: pytest.MonkeyPatch, colour: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "" if colour else "1")
    stream = Terminal()
    testing = ImageState("b", State.TESTING, "a [bold]suite")
    moved = Transfer(("a",), 1, "layer", 7_000_000)
    failed = ImageState("c", State.FAILED)
    shown(["a", "b", "c"], event("running"), moved, testing, failed, stream=stream)
    last = stream.getvalue()
    assert ("31m" in last) is colour
    for said in ("building", "7.0 MB", "horovod 3/4 RUN", "[bold]suite", "1 of 3 done"):
        assert said in last
    assert "starts" not in last


def test_more_images_than_lines_are_summed_up_and_the_urgent_ones_shown() -> None:
    status = BuildStatus([f"tf-{number}" for number in range(34)])
    images = [*status.images]
    events: list[Event] = [*(ImageState(image, State.TAGGED) for image in images[:10])]
    long = f"{RUN} {'x' * 300}"
    events += [event("running", long, image=images[30]), event("failed", long, image=images[33])]
    for one in events:
        status.apply(one, 0.0)
    stream = io.StringIO()
    Console(file=stream, width=100).print(picture(status, 6, 10.0))
    lines = stream.getvalue().rstrip("\n").splitlines()
    assert len(lines) == 5
    assert any(images[33] in line and "failed" in line for line in lines)
    assert any(images[30] in line and "building" in line for line in lines)
    assert " 11 of 34 done, 1 building, 22 waiting, 1 failed, " in lines[-1]


def test_the_step_shown_is_the_oldest_that_runs_and_a_shared_one_counts_once() -> None:
    status = BuildStatus(["a", "b"])
    for image in ("a", "b"):
        status.apply(event("planned", image=image), 0)
        status.apply(event("planned", f"[final 1/1] COPY {image}", 2, image=image), 0)
        status.apply(event("running", image=image), 1)
    status.apply(event("running", "[final 1/1] COPY a", 2), 2)
    assert status.images["a"].step == RUN
    for image in ("a", "b"):
        status.apply(event("done", elapsed=3.0, image=image), 3)
    assert status.images["a"].step == "[final 1/1] COPY a"
    assert status.steps == (1, 3)


def test_steps_of_two_builders_are_told_apart() -> None:
    """Each counts its steps from 1; the same stage runs on both."""
    events: list[Event] = [BakeBegun(("a",), "x"), BakeBegun(("b",), "y")]
    events += [event("done", elapsed=12.3, image=image) for image in "ab"]
    lines = shown(["a", "b"], *events)
    assert [line for line in lines if "12.3s" in line] == [
        "a x 12.3s horovod 3/4 RUN pip install horovod",
        "b y 12.3s horovod 3/4 RUN pip install horovod",
    ]
    status = BuildStatus(["a", "b"])
    for one in events:
        status.apply(one, 20)
    assert status.steps == (2, 2)


@pytest.mark.parametrize("later", ["cancelled", "running", "done"])
def test_a_failed_image_stays_failed_and_shows_the_step(later: StepState) -> None:
    status = BuildStatus(["a"])
    one = status.images["a"]
    status.apply(event("failed"), 1)
    status.apply(event(later, "[y 1/1] RUN", 2), 2)
    assert (one.state, one.step, one.final) == ("failed", RUN, True)


def test_a_step_that_was_cancelled_since_another_target_has_it_cancels_no_image() -> None:
    status = BuildStatus(["a"])
    for state in ("running", "cancelled"):
        status.apply(event(state), 1)
        assert status.images["a"].state == "building"


def test_an_exported_image_is_built_and_a_second_bake_begins_anew() -> None:
    status = BuildStatus(["a"])
    one = status.images["a"]
    for number in range(1, 6):
        status.apply(event("planned", f"[x {number}/5] RUN", number), 0)
    status.apply(event("cached", "[x 5/5] RUN", 5), 1)
    assert 0 < status.fraction < 0.5
    status.apply(event("running", EXPORT, 9), 2)
    assert one.state == "exporting"
    assert {s.state for s in one.steps.values()} == {"cached", "running"}, "others are not needed"
    status.apply(event("done", EXPORT, 9), 3)
    assert (one.state, one.step) == ("built", "")
    assert 0.5 < status.fraction < 1
    status.apply(BakeBegun(("a",)), 2)
    assert (status.images["a"].state, status.fraction) == ("waiting", 0)


def test_the_time_of_an_image_begins_with_its_first_step_that_is_not_cached() -> None:
    status = BuildStatus(["a"])
    one = status.images["a"]
    status.apply(event("running", "[os 1/1] FROM base:1", 1), 0)
    status.apply(event("done", "[os 1/1] FROM base:1", 1, 0.1), 0.1)
    status.apply(event("cached", "[os 2/2] RUN apt", 2), 5)
    assert one.elapsed(7) is None
    status.apply(event("running", RUN, 3), 10)
    status.apply(event("done", RUN, 3, 20.0), 30)
    status.apply(event("done", EXPORT, 4, 2.0), 40)
    assert one.elapsed(99) == 30.0
    for state, now in ((State.TESTING, 41), (State.PASSED, 50), (State.TAGGED, 60)):
        status.apply(ImageState("a", state), now)
    assert (one.final, one.elapsed(99)) == (True, 40.0)
    again = BuildStatus(["a"])
    again.apply(event("done", "[os 1/1] FROM base:1", 1, 30.0), 30)
    assert again.images["a"].since == 0, "pulling a base is work"
