"""One image: state, share of its steps, bytes, time."""

from imgbuild.engine.progress import BuildEvent, State, StepPlanned, Transfer
from imgbuild.engine.row import Row

RUN = "[horovod 2/2] RUN make"
EXPORT = "exporting to image"


def event(state: State, step: str = RUN, number: int = 1, elapsed: float = 0.0) -> BuildEvent:
    return BuildEvent("a", step, state, elapsed, number)


def planned(count: int) -> Row:
    row = Row("a")
    for number in range(1, count + 1):
        row.plan(StepPlanned("a", f"[x {number}/{count}] RUN", number))
    return row


def end(row: Row, number: int, state: State = "done", now: float = 1.0) -> None:
    row.take(event(state, row.steps[number].text, number), now)


def test_the_step_one_waits_for_is_the_oldest_that_runs() -> None:
    row = Row("a")
    row.take(event("running", "[b 1/1] RUN long", 1), 0)
    row.take(event("running", "[c 1/1] RUN short", 2), 1)
    assert row.step == "[b 1/1] RUN long"
    row.take(event("done", "[b 1/1] RUN long", 1), 2)
    assert row.step == "[c 1/1] RUN short"
    row.take(event("done", "[c 1/1] RUN short", 2), 3)
    assert row.step == "[c 1/1] RUN short"


def test_a_failed_row_stays_failed_and_shows_the_step() -> None:
    states: tuple[State, ...] = ("cancelled", "running", "done")
    for later in states:
        row = Row("a")
        row.take(event("failed"), 1)
        row.take(event(later, "[y 1/1] RUN", 2), 2)
        assert (row.state, row.step, row.final) == ("failed", RUN, True)


def test_a_second_bake_begins_anew_but_the_share_never_falls() -> None:
    row = planned(3)
    end(row, 1)
    end(row, 2)
    assert row.fraction == 0.5
    row.begin_bake()
    assert (row.state, row.fraction) == ("waiting", 0.5)
    for number in range(1, 10):
        row.plan(StepPlanned("a", f"[x {number}/9] RUN", number))
    end(row, 1, "cached")
    assert row.fraction == 0.5


def test_the_export_is_one_more_step_and_only_the_image_is_all() -> None:
    row = planned(1)
    assert row.fraction == 0
    end(row, 1, "cached")
    assert row.fraction == 0.5
    row.take(event("running", EXPORT, 9), 2)
    assert row.state == "exporting"
    row.take(event("done", EXPORT, 9), 3)
    assert (row.state, row.fraction, row.step) == ("built", 1.0, "")


def test_housekeeping_is_no_step() -> None:
    row = planned(1)
    row.plan(StepPlanned("a", "[internal] load build context", 7))
    row.take(event("done", "[internal] load build context", 7), 1)
    assert (row.state, len(row.steps)) == ("waiting", 1)


def test_a_share_of_unknown_steps_is_not_shown() -> None:
    row = Row("a")
    assert row.fraction is None
    row.take(event("done"), 1)  # a format that does not tell the steps to come
    assert row.fraction is None


def test_steps_that_were_not_needed_do_not_count_in_the_end() -> None:
    row = planned(5)
    end(row, 5, "cached")
    row.take(event("running", EXPORT, 9), 1)
    assert {step.state for step in row.steps.values()} == {"cached", "running"}


def test_the_time_of_an_image_begins_with_its_first_step_that_is_not_cached() -> None:
    row = Row("a")
    row.take(event("running", "[os 1/1] FROM base:1", 1), 0)
    row.take(event("done", "[os 1/1] FROM base:1", 1, 0.1), 0.1)
    row.take(event("cached", "[os 2/2] RUN apt", 2), 5)
    assert row.elapsed(7) is None
    row.take(event("running", RUN, 3), 10)
    row.take(event("done", RUN, 3, 20.0), 30)
    row.take(event("done", EXPORT, 4, 2.0), 40)
    assert row.elapsed(99) == 30.0
    assert row.build_seconds == row.elapsed(99)


def test_an_image_from_the_cache_took_no_time() -> None:
    row = Row("a")
    row.take(event("cached", RUN), 3)
    row.take(event("done", EXPORT, 4), 3)
    assert row.build_seconds == 0.0


def test_pulling_a_base_is_work() -> None:
    row = Row("a")
    row.take(event("done", "[os 1/1] FROM base:1", 1, 30.0), 30)
    assert row.since == 0


def test_bytes_are_those_of_what_runs_then_the_sum() -> None:
    row = Row("a")
    row.take(event("running"), 0)
    row.moved[1, "layer"] = Transfer(("a",), 1, "layer", 10, 40)
    row.moved[2, "context"] = Transfer(("a",), 2, "context", 5)
    assert row.bytes == (10, 40)
    row.take(event("done"), 1)
    assert row.bytes == (15, 0)


def test_notes_end_an_image() -> None:
    row = Row("a")
    row.note("testing", "horovod", 1, ended=False)
    before = row.final
    assert row.elapsed(5) == 4
    row.note("passed", "", 6, ended=True)
    row.note("named", "", 20, ended=True)
    assert (before, row.final) == (False, True)
    assert row.elapsed(50) == 5


def test_an_image_that_is_not_built_yet_has_no_time() -> None:
    row = Row("a")
    row.take(event("done", elapsed=3.0), 3)
    assert row.build_seconds is None


def test_a_step_waits_for_others_through_housekeeping() -> None:
    row = Row("a")
    row.plan(StepPlanned("a", "[a 1/1] RUN", 1))
    row.plan(StepPlanned("a", "[b 1/1] RUN", 2))
    row.plan(StepPlanned("a", "[b 2/2] LINK COPY a b", 3, (1,)))
    row.plan(StepPlanned("a", "[c 1/1] RUN", 4, (2, 3, 99)))
    assert row.waits_for(4) == {1, 2}
    end(row, 1)
    assert row.waits_for(4) == {2}
