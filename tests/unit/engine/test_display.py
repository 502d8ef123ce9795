"""What is seen: on a terminal, in a log, for one image and for many."""

import io
import os
from pathlib import Path

import pytest
from simulated_build import Simulation, family
from terminal import Terminal

from imgbuild.engine.board import Board
from imgbuild.engine.display import BuildDisplay, on_ci
from imgbuild.engine.forecast import Forecast
from imgbuild.engine.progress import BuildEvent, State

RUN = "[horovod 3/4] RUN pip install horovod"


def event(
    state: State, step: str = RUN, number: int = 1, elapsed: float = 0, image: str = "tf-2.2-cpu"
) -> BuildEvent:
    return BuildEvent(image, step, state, elapsed, number)


def shown(*events: BuildEvent, images: tuple[str, ...] = ("tf-2.2-cpu",)) -> list[str]:
    stream = io.StringIO()
    with BuildDisplay(images, stream) as display:
        for one in events:
            display.event(one)
    return stream.getvalue().splitlines()


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def test_off_a_terminal_the_steps_of_one_image_are_lines() -> None:
    assert shown(event("running"), event("done", elapsed=12.3)) == [
        "tf-2.2-cpu      starts  horovod 3/4 RUN pip install horovod",
        "tf-2.2-cpu       12.3s  horovod 3/4 RUN pip install horovod",
    ]


def test_the_same_is_not_said_twice() -> None:
    assert len(shown(event("done"), event("running"), event("done"))) == 2


def test_of_many_images_only_states_and_long_steps_are_lines() -> None:
    both = ("tf-2.2-cpu", "b")
    lines = shown(
        event("running"),
        event("running", image="b"),
        event("done", elapsed=12.3),
        event("done", elapsed=12.3, image="b"),
        event("running", "[x 1/1] COPY a b", 2),
        event("done", "[x 1/1] COPY a b", 2, 0.3),
        event("done", "exporting to image", 3, 0.5),
        images=both,
    )
    assert [line.split(None, 1)[1].lstrip() for line in lines][:3] == [
        "building",
        "building",
        "12.3s  horovod 3/4 RUN pip install horovod (and for 1 more)",
    ]
    assert lines[3].startswith("tf-2.2-cpu       built  in ")
    assert len(lines) == 4


def test_a_failure_among_many_names_its_step() -> None:
    (line,) = shown(event("failed"), images=("tf-2.2-cpu", "b"))
    assert line == "tf-2.2-cpu      failed  horovod 3/4 RUN pip install horovod"


def test_housekeeping_is_shown_only_when_it_fails() -> None:
    step = "[internal] load .dockerignore"
    assert shown(event("done", step)) == []
    assert len(shown(event("failed", step))) == 1


def test_events_of_bake_and_strangers_are_not_shown() -> None:
    assert shown(BuildEvent(None, "x", "running"), BuildEvent("stranger", "x", "running")) == []


def test_a_note_is_a_line() -> None:
    stream = io.StringIO()
    with BuildDisplay(["a"], stream) as display:
        display.note("a", "testing", "horovod")
        display.note("a", "passed", ended=True)
    assert stream.getvalue() == "a     testing  horovod\na      passed\n"


def test_of_many_images_failures_of_checks_are_told_and_suites_are_not() -> None:
    stream = io.StringIO()
    with BuildDisplay(["a", "b"], stream) as display:
        display.note("a", "testing", "pins, horovod")
        display.note("a", "testing", "horovod 0/9")
        display.note("a", "testing", "FAILED horovod: test_x")
    lines = [line.split(None, 2)[2] for line in stream.getvalue().splitlines()]
    assert lines == ["pins, horovod", "FAILED horovod: test_x"]


def test_after_a_quiet_minute_there_is_a_line() -> None:
    now = [0.0]
    stream = io.StringIO()
    with BuildDisplay(["a", "b", "c"], stream, lambda: now[0]) as display:
        display.event(event("running", image="a"))
        now[0] = 59
        display.beat()
        assert len(stream.getvalue().splitlines()) == 1
        now[0] = 100
        display.beat()
        display.beat()
        line = stream.getvalue().splitlines()[1:]
    longest = "longest: horovod 3/4 RUN pip install horovod of a 1m40s"
    assert line == [f"0 of 3 done, 1 building, 2 waiting, {longest}"]


def test_where_nothing_is_done_nothing_is_shown() -> None:
    for stream in (io.StringIO(), Terminal()):
        with BuildDisplay(["a"], stream) as display:
            display.expect({"a": "nothing"})
            display.finished("a", "up to date")
        assert stream.getvalue() == ""


def test_what_became_of_an_image_is_told_once() -> None:
    stream = io.StringIO()
    with BuildDisplay(["a", "b"], stream) as display:
        display.event(event("failed", image="a"))
        display.finished("a", "failed", "no")
        display.note("b", "passed", ended=True)
        display.finished("b", "named")
    assert [line.split()[:2] for line in stream.getvalue().splitlines()] == [
        ["a", "failed"],
        ["b", "passed"],
        ["b", "named"],
    ]


def test_on_a_terminal_there_is_a_line_for_each_image_and_a_bar() -> None:
    stream = Terminal()
    with BuildDisplay(["tf-2.2-cpu", "b"], stream) as display:
        display.event(event("running"))
        display.note("b", "testing", "a [bold]suite")
    last = stream.getvalue()
    for said in ("tf-2.2-cpu", "building", "horovod 3/4 RUN", "a [bold]suite", "0 of 2 done"):
        assert said in last
    assert "starts" not in last


def test_on_ci_a_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    stream = Terminal()
    with BuildDisplay(["tf-2.2-cpu"], stream) as display:
        display.event(event("running"))
    assert stream.getvalue() == "tf-2.2-cpu      starts  horovod 3/4 RUN pip install horovod\n"
    assert [on_ci({"CI": word}) for word in ("1", "0", "false", "")] == [True, False, False, False]


def test_there_are_no_colours_where_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    texts = {}
    for no_color in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_color)
        stream = Terminal()
        with BuildDisplay(["a"], stream) as display:
            display.note("a", "failed", ended=True)
        texts[no_color] = stream.getvalue()
    assert "31m" in texts[""]
    assert "31m" not in texts["1"]


def test_the_display_ends_with_an_exception() -> None:
    stream = Terminal()
    display = BuildDisplay(["a"], stream)
    with pytest.raises(KeyError), display:
        display.event(event("running", image=os.environ["NO_SUCH_VARIABLE"]))
    with pytest.raises(ZeroDivisionError), display:
        display.note("a", "testing", str(1 // 0))
    assert display._live is None


def test_a_whole_build_is_told_and_learnt(tmp_path: Path) -> None:
    simulation = Simulation(family(4))
    stream = io.StringIO()
    file = tmp_path / "durations.json"
    with BuildDisplay(simulation.images, stream, simulation.clock, file) as display:
        simulation.begin(display)
        while not simulation.over:
            simulation.tick()
    states = [line.split()[:2] for line in stream.getvalue().splitlines()]
    for image in simulation.images:
        mine = [state for name, state in states if name == image]
        told = [state for state in mine if not state[0].isdigit()]
        assert told == ["building", "built", "testing", "passed", "named"]
        assert (display.seconds(image) or 0) > 60
    assert file.is_file()


def test_a_push_has_no_estimate_and_counts_what_is_published() -> None:
    """Nothing was learnt of it: what it takes is the network's business."""
    board = Board.of(["one", "two"])
    board.expect({"one": "push", "two": "push"}, 0.0, tests=False)
    forecast = Forecast(None)
    for name in ("one", "two"):
        row = board.note(name, "pushing", "", 1.0, ended=False)
        forecast.note(row, board, 1.0, tested=False)
    assert forecast.fraction(board, 3.0) == 0.0
    assert forecast.seconds(board, 3.0) is None
    board.note("one", "published", "", 4.0, ended=True)
    assert forecast.fraction(board, 6.0) == 0.5
