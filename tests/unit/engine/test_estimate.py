"""The estimate, on simulated builds whose end is known."""

import io
from collections.abc import Mapping
from pathlib import Path

import pytest
from simulated_build import PROCESSORS, Simulation, Work, family

from imgbuild.engine.display import BuildDisplay
from imgbuild.engine.estimate import Countdown
from imgbuild.engine.forecast import Forecast
from imgbuild.engine.workload import Workload


def play(steps: Mapping[str, Work], file: Path) -> list[tuple[float, float | None, float]]:
    """Return what was said while a build ran: seconds since its start, to its end, the share."""
    simulation = Simulation(dict(steps))
    display = BuildDisplay(simulation.images, io.StringIO(), simulation.clock)
    display._forecast = Forecast(file, PROCESSORS)
    said = []
    with display:
        simulation.begin(display)
        begun = simulation.now
        while not simulation.over:
            simulation.tick()
            forecast, board = display._begin(), display.board
            left = forecast.seconds(board, simulation.now)
            share = forecast.fraction(board, simulation.now)
            said.append((simulation.now - begun, left, share))
    return said


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "durations.json"


def faults(said: list[tuple[float, float | None, float]]) -> list[float]:
    """Return by how much the estimates were wrong, as a part of the whole time."""
    total = said[-1][0]
    return [abs(left - (total - now)) / total for now, left, _ in said if left is not None]


def test_a_first_build_says_nothing(file: Path) -> None:
    said = play(family(4), file)
    assert [left for now, left, _ in said if now < 0.9 * said[-1][0] and left is not None] == []


def test_the_second_build_knows_when_it_ends(file: Path) -> None:
    play(family(8), file)
    said = play(family(8), file)
    assert all(left is not None for _, left, _ in said[5:])
    assert max(faults(said)) < 0.15


def test_an_estimate_falls_as_time_goes_by(file: Path) -> None:
    play(family(8), file)
    lefts = [left or 0.0 for _, left, _ in play(family(8), file)]
    rises = [later - now for now, later in zip(lefts, lefts[10:], strict=False)]
    assert max(rises) < 3


def test_a_slower_machine_is_noticed(file: Path) -> None:
    play(family(8), file)
    said = play(family(8, 1.5), file)
    late = [one for one in said if one[0] > 0.5 * said[-1][0]]
    total = said[-1][0]
    assert all(abs((left or 0.0) - (total - now)) < 0.35 * total for now, left, _ in late)


def test_what_a_family_took_tells_what_one_image_will_take(file: Path) -> None:
    play(family(8), file)
    said = play(family(1), file)
    assert max(faults(said)) < 0.3


def test_an_image_that_is_new_is_taken_for_one_of_the_others(file: Path) -> None:
    play(family(8), file)
    said = play(family(10), file)
    assert all(left is not None for _, left, _ in said[5:])
    assert max(faults(said)) < 0.25


def test_the_share_of_all_never_falls(file: Path) -> None:
    for _ in range(2):
        shares = [share for _, _, share in play(family(6), file)]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
        assert all(0 <= share < 1 for share in shares[:-1])


def test_work_does_not_depend_on_what_ran_beside_it() -> None:
    load = Workload(2)
    load.run(["a", "b", "c", "d"], [], 0)
    load.run([], [], 10)
    assert load.done == dict.fromkeys("abcd", 5.0)
    load.run(["e"], [], 20)
    load.run([], [], 30)
    assert load.done["e"] == 10.0


def test_an_interval_without_work_is_not_charged() -> None:
    load = Workload(2)
    load.run(["a"], [], 0)
    load.run([], [], 1)
    load.run(["a"], [], 100)
    load.run([], ["suites"], 101)
    assert load.done["a"] == 2.0
    assert (load.most_suites, load.together) == (1, False)


def test_a_countdown_goes_over_to_a_new_estimate_slowly() -> None:
    countdown = Countdown()
    assert countdown.shown(None, 0) is None
    assert countdown.shown(100, 0) == 100
    assert 97 < (countdown.shown(200, 0.1) or 0) < 103
    assert countdown.shown(200, 100) == pytest.approx(200, abs=1)
    assert countdown.shown(None, 101) is None
