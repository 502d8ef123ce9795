"""What a build shows: on a terminal, in a log, for one image and for many."""

import io
import os

import pytest
from rich.console import Console, RenderableType
from terminal import Terminal

from imgbuild.build.display import BuildDisplay, image_table, progress_bar
from imgbuild.build.lines import clock_time, shortened
from imgbuild.build.status import BuildStatus
from imgbuild.engine.progress import (
    BuildEvent,
    Event,
    ImagesPlanned,
    ImageState,
    State,
    StepPlanned,
    Transfer,
)

RUN = "[horovod 3/4] RUN pip install horovod"


def event(
    state: State, step: str = RUN, number: int = 1, elapsed: float = 0, image: str = "tf-2.2-cpu"
) -> BuildEvent:
    return BuildEvent(image, step, state, elapsed, number)


def shown(*events: BuildEvent, images: tuple[str, ...] = ("tf-2.2-cpu",)) -> list[str]:
    stream = io.StringIO()
    with BuildDisplay(images, stream) as display:
        for one in events:
            display.on_event(one)
    return stream.getvalue().splitlines()


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def test_off_a_terminal_the_steps_of_one_image_are_lines() -> None:
    assert shown(event("running"), event("done", elapsed=12.3)) == [
        "tf-2.2-cpu      starts  horovod 3/4 RUN pip install horovod",
        "tf-2.2-cpu       12.3s  horovod 3/4 RUN pip install horovod",
    ]


def test_no_line_is_written_twice() -> None:
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


def test_steps_of_buildkit_itself_are_shown_only_when_they_fail() -> None:
    step = "[internal] load .dockerignore"
    assert shown(event("done", step), BuildEvent(None, "x", "running")) == []
    assert len(shown(event("failed", step))) == 1


def test_of_many_images_failed_checks_are_lines_and_suites_are_not() -> None:
    stream = io.StringIO()
    with BuildDisplay(["a", "b"], stream) as display:
        display.on_event(ImageState("a", "testing", "pins, horovod"))
        display.on_event(ImageState("a", "testing", "horovod 0/9"))
        display.on_event(ImageState("a", "testing", "FAILED horovod: test_x"))
    lines = [line.split(None, 2)[2] for line in stream.getvalue().splitlines()]
    assert lines == ["pins, horovod", "FAILED horovod: test_x"]


def test_after_a_quiet_minute_there_is_a_line() -> None:
    now = [0.0]
    stream = io.StringIO()
    with BuildDisplay(["a", "b", "c"], stream, lambda: now[0]) as display:
        display.on_event(event("running", image="a"))
        now[0] = 59
        display.beat()
        assert len(stream.getvalue().splitlines()) == 1
        now[0] = 100
        display.beat()
        display.beat()
        line = stream.getvalue().splitlines()[1:]
    longest = "longest: horovod 3/4 RUN pip install horovod of a 1m40s"
    assert line == [f"0 of 3 done, 1 building, 2 waiting, 0 of 1 steps, {longest}, 1m40s"]


def test_where_nothing_is_done_nothing_is_shown() -> None:
    for stream in (io.StringIO(), Terminal()):
        with BuildDisplay(["a"], stream) as display:
            display.on_event(ImagesPlanned({"a": "nothing"}))
            display.on_event(ImageState("a", "up to date"))
        assert stream.getvalue() == ""


def test_how_an_image_ended_is_written_once() -> None:
    stream = io.StringIO()
    with BuildDisplay(["a", "b"], stream) as display:
        display.on_event(event("failed", image="a"))
        display.on_event(ImageState("a", "failed", error="no"))
        display.on_event(ImageState("b", "passed"))
        display.on_event(ImageState("b", "named"))
    assert [line.split()[:2] for line in stream.getvalue().splitlines()] == [
        ["a", "failed"],
        ["b", "passed"],
        ["b", "named"],
    ]


def test_on_a_terminal_there_is_a_line_for_each_image_and_a_bar() -> None:
    stream = Terminal()
    with BuildDisplay(["tf-2.2-cpu", "b"], stream) as display:
        display.on_event(event("running"))
        display.on_event(ImageState("b", "testing", "a [bold]suite"))
    last = stream.getvalue()
    for said in ("tf-2.2-cpu", "building", "horovod 3/4 RUN", "a [bold]suite", "0 of 2 images"):
        assert said in last
    assert "starts" not in last


def test_on_ci_a_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    stream = Terminal()
    with BuildDisplay(["tf-2.2-cpu"], stream) as display:
        display.on_event(event("running"))
    assert stream.getvalue() == "tf-2.2-cpu      starts  horovod 3/4 RUN pip install horovod\n"


def test_there_are_no_colours_where_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    texts = {}
    for no_color in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_color)
        stream = Terminal()
        with BuildDisplay(["a"], stream) as display:
            display.on_event(ImageState("a", "failed"))
        texts[no_color] = stream.getvalue()
    assert "31m" in texts[""]
    assert "31m" not in texts["1"]


def test_the_display_ends_with_an_exception() -> None:
    stream = Terminal()
    display = BuildDisplay(["a"], stream)
    with pytest.raises(KeyError), display:
        display.on_event(event("running", image=os.environ["NO_SUCH_VARIABLE"]))
    with pytest.raises(ZeroDivisionError), display:
        display.on_event(ImageState("a", "testing", str(1 // 0)))
    assert display._live is None


def family(count: int) -> BuildStatus:
    return BuildStatus([f"tf-1.{number}-cpu-debian-intelmpi" for number in range(count)])


def begin(status: BuildStatus, image: str, state: State = "running") -> None:
    step = "[horovod 2/2] RUN --mount=type=cache make " + "x" * 300
    events: tuple[Event, ...] = (
        StepPlanned(image, step, 1),
        StepPlanned(image, "[final 1/2] COPY a b", 2),
        BuildEvent(image, step, state, number=1),
        Transfer((image,), 1, "layer", 12 * 10**6, 40 * 10**6),
    )
    for one in events:
        status.take(one, 0.0)


def drawn(picture: RenderableType, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width).print(picture)
    return stream.getvalue().rstrip("\n").splitlines()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_each_image_has_one_line_with_state_time_bytes_and_step(width: int) -> None:
    status = family(5)
    for image in status.images:
        begin(status, image)
    lines = drawn(image_table(status, 50, 10.0), width)
    assert len(lines) == 5
    assert all(len(line) <= width for line in lines)
    if width == 200:
        expected = ["tf-1.0-cpu-debian-intelmpi", "building", "10.0s", "12.0", "MB", "horovod"]
        assert lines[0].split()[:6] == expected
        assert "horovod 2/2 RUN make xxx" in lines[0]


def test_more_images_than_lines_are_summed_up_and_the_urgent_ones_shown() -> None:
    status = family(34)
    images = [*status.images]
    begin(status, images[30])
    begin(status, images[33], "failed")
    for image in images[:10]:
        status.take(ImageState(image, "named"), 5)
    lines = drawn(image_table(status, 6, 10.0), 100)
    assert len(lines) == 6
    assert any(images[33] in line and "failed" in line for line in lines)
    assert any(images[30] in line and "building" in line for line in lines)
    assert lines[-1].startswith("and 29 more")
    assert "10 named" in lines[-1]


def test_the_bar_shows_images_and_steps_done_of_all_and_the_elapsed_time() -> None:
    status = family(3)
    first, second, _ = status.images
    begin(status, first)
    status.take(ImageState(second, "named"), 5)
    (line,) = drawn(progress_bar(status, 192), 80)
    assert line.endswith("1 of 3 images  0 of 2 steps  3m12s")


def test_steps_and_times_are_short() -> None:
    step = "[horovod 3/4] RUN --mount=type=cache,id=x --network=none make <<EOF (true)"
    assert shortened(step) == "horovod 3/4 RUN make"
    assert len(shortened("[a 1/1] RUN " + "x" * 99)) == 72
    assert [clock_time(one) for one in (12.34, 245, 3725)] == ["12.3s", "4m05s", "1h02m"]
