"""How long steps may run, with a clock of the test's own."""

from imgbuild.engine.bake import GOES_ON, WAITS, StepLimit
from imgbuild.engine.progress import BuildEvent, Remark, StepOutput, StepState
from imgbuild.project import Project


def event(state: StepState, number: int = 1, target: str = "a") -> BuildEvent:
    return BuildEvent(target, f"[x {number}/9] RUN", state, number=number)


def says(text: str, number: int = 1) -> StepOutput:
    return StepOutput(("a",), text, number)


def test_a_step_may_run_up_to_the_limit() -> None:
    limit = StepLimit(60, 0)
    limit.apply(event("running", 2), 5)
    limit.apply(event("running"), 10)
    limit.apply(event("done", 2), 50)
    assert limit.exceeded(69.9) == []
    (late,) = limit.exceeded(70)
    assert (late.target, late.step, late.state, late.elapsed) == ("a", "[x 1/9] RUN", "failed", 60)
    assert late.error == "ran for more than 1m (the limit of a step)"


def test_late_steps_and_those_that_hang_with_them_fail_for_all_who_share_them() -> None:
    limit = StepLimit(60, 0)
    for number, target, began in ((1, "a", 0), (1, "b", 0.2), (2, "c", 0.4), (3, "d", 1.1)):
        limit.apply(event("running", number, target), began)
    limit.apply(event("running", 4, "e"), 0)
    limit.apply(says(WAITS, 4), 1)
    assert limit.exceeded(60.3) == []
    assert [late.target for late in limit.exceeded(60.4)] == ["a", "b", "c"], "who waits is not"


def test_between_steps_and_while_all_wait_a_build_must_say_something() -> None:
    limit = StepLimit(60, 0)
    limit.apply(event("running"), 0)
    limit.apply(says(WAITS), 20)
    limit.apply(Remark("loading"), 30)
    assert limit.exceeded(89) == []
    (late,) = limit.exceeded(90)
    assert (late.target, late.step) == (None, "")
    assert late.error.startswith("the engine said nothing for more than 1m")


def test_a_reader_looks_at_the_clock_in_time_and_no_limit_is_no_limit() -> None:
    limit = StepLimit(60, 0)
    assert (limit.wait(10), limit.wait(59.5)) == (1, 0.5)
    assert 0 < limit.wait(100) < 0.1
    limit = StepLimit(0, 0)
    limit.apply(event("running"), 0)
    assert limit.exceeded(10**9) == []
    assert limit.wait(10**9) == 1


def test_waiting_for_a_place_to_compile_is_not_running() -> None:
    limit = StepLimit(60, 0)
    limit.apply(event("running"), 10)
    for second in (11, 40, 80, 120):
        limit.apply(says(WAITS), second)
        assert limit.exceeded(second + 10) == []
    limit.apply(says(GOES_ON), 130)
    assert limit.exceeded(189) == []
    (late,) = limit.exceeded(190)
    assert (late.state, late.elapsed) == ("failed", 60)


def test_the_words_are_those_of_the_program(project: Project) -> None:
    program = (project.files / "compiling.sh").read_text(encoding="utf-8")
    assert WAITS in program
    assert GOES_ON in program
