"""How far the images of a build are: states, steps, bytes, time."""

from imgbuild.build.status import BuildStatus, ImageStatus
from imgbuild.engine.progress import (
    BakeBegun,
    BuildEvent,
    ImagesPlanned,
    ImageState,
    State,
    StepPlanned,
)

RUN = "[horovod 2/2] RUN make"
EXPORT = "exporting to image"


def event(state: State, step: str = RUN, number: int = 1, elapsed: float = 0.0) -> BuildEvent:
    return BuildEvent("a", step, state, elapsed, number)


def planned(count: int) -> ImageStatus:
    one = ImageStatus("a")
    for number in range(1, count + 1):
        one.plan(StepPlanned("a", f"[x {number}/{count}] RUN", number))
    return one


def end(one: ImageStatus, number: int, state: State = "done", now: float = 1.0) -> None:
    one.take(event(state, one.steps[number].text, number), now)


def test_the_step_shown_is_the_oldest_that_runs_and_a_shared_one_counts_once() -> None:
    status = BuildStatus(["a", "b"])
    for image in ("a", "b"):
        status.take(StepPlanned(image, RUN, 1), 0)
        status.take(StepPlanned(image, f"[final 1/1] COPY {image}", 2), 0)
        status.take(BuildEvent(image, RUN, "running", 0, 1), 1)
    status.take(event("running", "[final 1/1] COPY a", 2), 2)
    assert status.images["a"].step == RUN
    for image in ("a", "b"):
        status.take(BuildEvent(image, RUN, "done", 3.0, 1), 3)
    assert status.images["a"].step == "[final 1/1] COPY a"
    assert status.steps == (1, 3)


def test_a_failed_image_stays_failed_and_shows_the_step() -> None:
    states: tuple[State, ...] = ("cancelled", "running", "done")
    for later in states:
        one = ImageStatus("a")
        one.take(event("failed"), 1)
        one.take(event(later, "[y 1/1] RUN", 2), 2)
        assert (one.state, one.step, one.final) == ("failed", RUN, True)


def test_a_second_bake_begins_anew_but_the_fraction_never_falls() -> None:
    status = BuildStatus(["a"])
    for number in (1, 2):
        status.take(StepPlanned("a", f"[x {number}/2] RUN", number), 0)
        status.take(event("done", f"[x {number}/2] RUN", number), 1)
    before = status.fraction
    assert 0.5 < before < 0.9
    status.take(BakeBegun(("a",)), 2)
    assert (status.images["a"].state, status.fraction) == ("waiting", before)


def test_an_exported_image_is_built_but_not_all_of_its_work() -> None:
    one = planned(5)
    end(one, 5, "cached")
    assert 0 < one.share < 0.5
    one.take(event("running", EXPORT, 9), 2)
    assert one.state == "exporting"
    assert {s.state for s in one.steps.values()} == {"cached", "running"}, "others are not needed"
    one.take(event("done", EXPORT, 9), 3)
    assert (one.state, one.share, one.step) == ("built", 0.9, "")


def test_the_time_of_an_image_begins_with_its_first_step_that_is_not_cached() -> None:
    one = ImageStatus("a")
    one.take(event("running", "[os 1/1] FROM base:1", 1), 0)
    one.take(event("done", "[os 1/1] FROM base:1", 1, 0.1), 0.1)
    one.take(event("cached", "[os 2/2] RUN apt", 2), 5)
    assert one.elapsed(7) is None
    one.take(event("running", RUN, 3), 10)
    one.take(event("done", RUN, 3, 20.0), 30)
    one.take(event("done", EXPORT, 4, 2.0), 40)
    assert one.elapsed(99) == 30.0
    assert one.build_seconds == one.elapsed(99)
    one.set_state("testing", "horovod", 41)
    assert not one.final
    one.set_state("passed", "", 50)
    one.set_state("named", "", 60)
    assert (one.final, one.elapsed(99)) == (True, 40.0)
    pulled = ImageStatus("a")
    pulled.take(event("done", "[os 1/1] FROM base:1", 1, 30.0), 30)
    assert pulled.since == 0, "pulling a base is work"


def test_the_fraction_of_all_never_falls_and_is_1_only_at_the_end() -> None:
    status = BuildStatus(["a", "b", "idle"])
    status.take(ImagesPlanned({"a": "push", "b": "push", "idle": "nothing"}), 0)
    assert (status.done, [one.image for one in status.busy]) == (0, ["a", "b"])
    status.take(ImageState("a", "pushing"), 1)
    assert status.fraction == 0.0
    status.take(ImageState("a", "published"), 2)
    assert status.fraction == 0.5
    status.take(ImageState("a", "pushing"), 3)
    assert status.fraction == 0.5
    for image in ("a", "b"):
        status.take(ImageState(image, "failed"), 4)
    assert status.fraction == 1.0
