"""How long steps may run, with a clock of the test's own."""

from imgbuild.engine.progress import BuildEvent, Remark, State
from imgbuild.engine.step_limit import StepLimit


def event(state: State, number: int = 1, target: str = "a") -> BuildEvent:
    return BuildEvent(target, f"[x {number}/9] RUN", state, number=number)


def test_a_step_may_run_up_to_the_limit() -> None:
    limit = StepLimit(60, 0)
    limit.heard(event("running"), 10)
    assert limit.exceeded(69.9) == []
    (late,) = limit.exceeded(70)
    assert (late.target, late.step, late.state, late.elapsed) == ("a", "[x 1/9] RUN", "failed", 60)
    assert late.error == "ran for more than 1m (--step-timeout 1m)"


def test_a_step_that_ended_is_not_late() -> None:
    for end in ("done", "cached", "failed", "cancelled"):
        limit = StepLimit(60, 0)
        limit.heard(event("running"), 10)
        limit.heard(event(end), 50)
        assert limit.exceeded(100) == []


def test_what_a_step_writes_does_not_give_it_more_time() -> None:
    limit = StepLimit(60, 0)
    limit.heard(event("running"), 10)
    limit.heard(Remark("working"), 60)
    assert len(limit.exceeded(71)) == 1


def test_only_late_steps_fail_but_all_who_share_them() -> None:
    limit = StepLimit(60, 0)
    limit.heard(event("running", 1, "a"), 0)
    limit.heard(event("running", 1, "b"), 5)
    limit.heard(event("running", 2, "c"), 30)
    assert [late.target for late in limit.exceeded(60)] == ["a", "b"]


def test_between_steps_a_build_must_say_something() -> None:
    limit = StepLimit(60, 0)
    limit.heard(Remark("loading"), 30)
    assert limit.exceeded(89) == []
    (late,) = limit.exceeded(90)
    assert (late.target, late.step) == (None, "")
    assert late.error.startswith("the engine said nothing for more than 1m")


def test_no_limit_is_no_limit() -> None:
    limit = StepLimit(0, 0)
    limit.heard(event("running"), 0)
    assert limit.exceeded(10**9) == []
    assert limit.wait(10**9) is None


def test_a_reader_looks_at_the_clock_in_time() -> None:
    limit = StepLimit(60, 0)
    assert limit.wait(10) == 1
    assert limit.wait(59.5) == 0.5
    assert 0 < (limit.wait(100) or 0) < 0.1
