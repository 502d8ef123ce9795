"""What a person sees."""

import io

import pytest

from imgbuild.engine.display import BuildDisplay, clock_time, shortened
from imgbuild.engine.progress import BuildEvent, State

RUN = "[horovod 3/4] RUN pip install horovod"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return what makes the display a live one."""
        return True


def event(state: State, step: str = RUN, number: int = 1, elapsed: float = 0) -> BuildEvent:
    return BuildEvent("tf-2.2-cpu", step, state, elapsed, number)


def shown(*events: BuildEvent) -> list[str]:
    stream = io.StringIO()
    with BuildDisplay(["tf-2.2-cpu", "b"], stream) as display:
        for one in events:
            display.event(one)
    return stream.getvalue().splitlines()


def test_off_a_terminal_starts_and_ends_are_lines() -> None:
    assert shown(event("running"), event("done", elapsed=12.3)) == [
        "tf-2.2-cpu     starts  horovod 3/4 RUN pip install horovod",
        "tf-2.2-cpu      12.3s  horovod 3/4 RUN pip install horovod",
    ]


def test_the_same_is_not_said_twice() -> None:
    assert len(shown(event("done"), event("running"), event("done"))) == 2


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
    assert stream.getvalue() == "a    testing  horovod\na     passed\n"


def test_the_clock_of_an_image_that_is_done_stands() -> None:
    times = iter([0.0, 5.0])
    display = BuildDisplay(["a"], io.StringIO(), lambda: next(times))
    display.note("a", "testing", "horovod")
    display.note("a", "passed", ended=True)
    assert display.rows["a"].elapsed(99.0) == "5.0s"


def test_a_row_shows_the_step_that_still_runs() -> None:
    display = BuildDisplay(["tf-2.2-cpu"], io.StringIO())
    display.event(event("running", "long", 1))
    display.event(event("running", "short", 2))
    display.event(event("done", "short", 2))
    assert display.rows["tf-2.2-cpu"].step == "long"


@pytest.mark.parametrize("later", ["cancelled", "running", "done"])
def test_a_failed_row_stays_failed(later: State) -> None:
    display = BuildDisplay(["tf-2.2-cpu"], io.StringIO())
    display.event(event("failed"))
    display.event(event(later, "other", 2))
    row = display.rows["tf-2.2-cpu"]
    assert (row.state, row.step) == ("failed", RUN)


def test_the_clock_of_a_built_image_stands_still() -> None:
    times = iter([0.0, 5.0])
    display = BuildDisplay(["tf-2.2-cpu"], io.StringIO(), lambda: next(times))
    display.event(event("running"))
    display.event(event("done", "exporting to image"))
    row = display.rows["tf-2.2-cpu"]
    assert (row.state, row.elapsed(99.0)) == ("built", "5.0s")


def test_on_a_terminal_there_is_a_line_for_each_image() -> None:
    times = iter(range(100))
    stream = Terminal()
    with BuildDisplay(["tf-2.2-cpu", "b"], stream, lambda: float(next(times))) as display:
        display.event(event("running"))
        display.note("b", "testing", "a [bold]suite")
    last = stream.getvalue()
    for said in ("tf-2.2-cpu", "building", "horovod 3/4 RUN pip install", "a [bold]suite"):
        assert said in last
    assert "starts" not in last


def test_the_display_ends_with_an_exception() -> None:
    stream = Terminal()
    with pytest.raises(KeyError), BuildDisplay(["a"], stream) as display:
        raise KeyError
    assert display._live is None


def test_a_long_step_is_shortened() -> None:
    assert shortened("[a 1/2] " + "x" * 100, 20) == "a 1/2 " + "x" * 13 + "…"
    assert shortened("exporting [to] image") == "exporting [to] image"


def test_options_and_here_documents_are_left_out() -> None:
    step = "[packages 1/1] RUN --mount=type=bind,from=uv   --network=none <<'EOT' (set -eu...)"
    assert shortened(step) == "packages 1/1 RUN"
    assert shortened("[final 2/4] COPY --link --from=a /out/ /") == "final 2/4 COPY /out/ /"
    assert shortened("[a 1/1] RUN pip --version") == "a 1/1 RUN pip --version"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0s"), (12.34, "12.3s"), (245, "4m05s"), (3725, "1h02m")]
)
def test_durations(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text
