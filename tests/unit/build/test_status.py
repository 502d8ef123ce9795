"""How far the images of a build are: states, steps, time."""

import pytest

from imgbuild.build.status import BuildStatus, ImageStatus
from imgbuild.engine.progress import BakeBegun, BuildEvent, StepState
from imgbuild.events import ImagesPlanned, ImageState, State

RUN = "[horovod 2/2] RUN make"
EXPORT = "exporting to image"


@pytest.fixture
def status() -> BuildStatus:
    return BuildStatus(["a"])


@pytest.fixture
def one(status: BuildStatus) -> ImageStatus:
    return status.images["a"]


def event(state: StepState, step: str = RUN, number: int = 1, elapsed: float = 0.0) -> BuildEvent:
    return BuildEvent("a", step, state, elapsed, number)


def test_the_step_shown_is_the_oldest_that_runs_and_a_shared_one_counts_once() -> None:
    status = BuildStatus(["a", "b"])
    for image in ("a", "b"):
        status.apply(BuildEvent(image, RUN, "planned", number=1), 0)
        status.apply(BuildEvent(image, f"[final 1/1] COPY {image}", "planned", number=2), 0)
        status.apply(BuildEvent(image, RUN, "running", 0, 1), 1)
    status.apply(event("running", "[final 1/1] COPY a", 2), 2)
    assert status.images["a"].step == RUN
    for image in ("a", "b"):
        status.apply(BuildEvent(image, RUN, "done", 3.0, 1), 3)
    assert status.images["a"].step == "[final 1/1] COPY a"
    assert status.steps == (1, 3)


@pytest.mark.parametrize("later", ["cancelled", "running", "done"])
def test_a_failed_image_stays_failed_and_shows_the_step(
    status: BuildStatus, one: ImageStatus, later: StepState
) -> None:
    status.apply(event("failed"), 1)
    status.apply(event(later, "[y 1/1] RUN", 2), 2)
    assert (one.state, one.step, one.final) == ("failed", RUN, True)


def test_an_exported_image_is_built_and_a_second_bake_begins_anew(
    status: BuildStatus, one: ImageStatus
) -> None:
    for number in range(1, 6):
        status.apply(BuildEvent("a", f"[x {number}/5] RUN", "planned", number=number), 0)
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


def test_the_time_of_an_image_begins_with_its_first_step_that_is_not_cached(
    status: BuildStatus, one: ImageStatus
) -> None:
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


def test_pulling_a_base_is_work(status: BuildStatus, one: ImageStatus) -> None:
    status.apply(event("done", "[os 1/1] FROM base:1", 1, 30.0), 30)
    assert one.since == 0


def test_the_fraction_is_1_only_when_every_busy_image_has_ended() -> None:
    status = BuildStatus(["a", "b", "idle"])
    status.apply(ImagesPlanned({"a": "push", "b": "push", "idle": "nothing"}), 0)
    assert (status.done, [one.image for one in status.with_work]) == (0, ["a", "b"])
    status.apply(ImageState("a", State.PUSHING), 1)
    assert status.fraction == 0.0
    status.apply(ImageState("a", State.PUBLISHED), 2)
    assert status.fraction == 0.5
    status.apply(ImageState("b", State.FAILED), 4)
    assert status.fraction == 1.0
