"""What GPUs computed: each wrong value and place is found; what proves nothing is skipped."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import test_gpu_runs as suite
from container import Ran
from expectation import parse_expectation
from gpu_values import NAMES, digest, values, wrong_curve, wrong_step, wrong_sums, wrong_values
from skip_reasons import NOT_PROVED, ONE_PROCESS, forbidden

from support.expectations import GPU

PLACE, CPU = "/job:localhost/device:GPU:{}", "/device:CPU:0"
LENGTHS = (1000, 77)
Json = dict[str, Any]


def _ran(printed: object, stderr: str = "") -> Ran:
    return Ran("python", 1, 0, json.dumps(printed), stderr)


def _skipped(judge: Callable[[], None]) -> str:
    with pytest.raises(pytest.skip.Exception) as skipped:
        judge()
    reason = str(skipped.value.msg)
    assert not forbidden("gpu_runs", reason)
    return reason


def _results(number: int, **changes: Json) -> Json:
    good = {"device": PLACE.format(number)}
    return {
        name: {**good, "values": row, **changes.get(name, {})} for name, row in values().items()
    }


def test_a_wrong_place_is_found() -> None:
    nested = {"values": [[values()["product"]]]}
    assert wrong_values([_results(0, product=nested), _results(1)], NAMES) == []
    (wrong,) = wrong_values([_results(0), _results(0)], NAMES[:1])
    assert wrong == f"product on {PLACE.format(0)}: right"
    assert wrong_values([_results(0, product={"device": CPU})], NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_one_wrong_number_is_found(name: str) -> None:
    """A convolution may be rounded, and a product not."""
    right, fault = values()[name], [f"{name} on {PLACE.format(0)}: wrong"]
    for number in (right[7] + 1, right[7] - 0.6, float("nan")):
        wrong = {name: {"values": [*right[:7], number, *right[8:]]}}
        assert wrong_values([_results(0, **wrong)], NAMES) == fault
    near = {name: {"values": [one + 0.2 for one in right]}}
    assert wrong_values([_results(0, **near)], NAMES) == (fault if name == "product" else [])


def _ranks(size: int, **change: object) -> list[Json]:
    good = {"device": PLACE.format(0), "first": []}
    sums = [
        {**good, "length": length, "sha256": digest(length, size), **change} for length in LENGTHS
    ]
    return [{"rank": rank, "size": size, "sums": sums} for rank in range(size)]


@pytest.mark.parametrize(
    ("ranks", "size", "faults"),
    [
        (_ranks(4), 4, 0),
        (_ranks(2, sha256=digest(5, 2)), 2, 2 * len(LENGTHS)),
        (_ranks(1, device=CPU), 1, len(LENGTHS)),
        (_ranks(2)[:1], 2, 1),
    ],
    ids=["right", "sum", "place", "rank"],
)
def test_a_wrong_sum_place_or_rank_is_found(ranks: list[Json], size: int, faults: int) -> None:
    assert len(wrong_sums(ranks, size, LENGTHS)) == faults
    # sha256 of 3, 6, 9, … 21, 3 as float32: seen of two ranks on a CPU, with 1,000 numbers.
    assert digest(1000, 2).startswith("f70e0d9be9279cb2")


@pytest.mark.parametrize(
    ("gpus", "nccl", "mode", "ranks"),
    [([0], "2.4.8", 0, 1), ([0], "2.16.5", 0, 2), ([0], "2.16.5", 3, 1), ([0, 2], "2.16.5", 0, 2)],
)
def test_two_ranks_share_a_gpu_where_they_can(
    gpus: list[int], nccl: str, mode: int, ranks: int
) -> None:
    expect = parse_expectation({**GPU, "pins": {**GPU["pins"], "nccl": nccl}})
    devices = [{"name": "T4", "capability": "7.5", "mode": mode}] * 3
    assert suite.ranks_on(gpus, _ran({"devices": devices}), expect) == ranks


@pytest.mark.parametrize(
    ("gpus", "bad", "found"),
    [
        ([0], "", (2, 0, "")),
        ([0], "2", (1, 0, "two ranks on it: exit code 124")),
        ([0], "12", (1, 124, "two ranks on it: exit code 124")),
        ([0, 1], "2", (2, 124, "")),
    ],
)
def test_two_ranks_that_cannot_share_a_gpu_leave_one(
    gpus: list[int], bad: str, found: tuple[int, int, str]
) -> None:
    def run(*argv: str, seconds: int) -> Ran:
        """End jobs of so many ranks badly."""
        ranks = argv[argv.index("-n") + 1] if "-n" in argv else "none"
        return Ran(f"{ranks} ranks", seconds, 124 if ranks in bad else 0, "", "")

    container = SimpleNamespace(fresh_folder=lambda: "/f", path_of=str, run=run)
    make: Any = suite.reduced.__wrapped__  # type: ignore[attr-defined]
    job = make(container, gpus, 2, parse_expectation(GPU))
    assert (job.ranks, job.ran.exit_code, job.lost) == found


def test_one_rank_proves_no_allreduce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "LENGTHS", LENGTHS)

    def judge(results: list[Json], lost: str = "") -> None:
        files = Ran("cat", 1, 0, "\n".join(map(json.dumps, results)), "")
        job = suite.Job(len(results), _ran(""), files, lost)
        suite.test_allreduce_is_right_on_all_gpus(job)

    judge(_ranks(2))
    for size in (1, 2):
        with pytest.raises(AssertionError):
            judge(_ranks(size, sha256=""))
    lost = "two ranks on it: exit code 124"
    assert _skipped(lambda: judge(_ranks(1), lost)) == f"{NOT_PROVED} ({lost})"


def test_room_for_others_is_proved() -> None:
    def judge(error: int, devices: int = 1) -> None:
        room = {"free": 9, "wanted": 2, "error": error}
        suite.test_memory_that_grows_leaves_room_for_others(
            _ran({"devices": devices, "room": room})
        )

    judge(0)
    for error, devices in ((0, 0), (2, 1)):
        with pytest.raises(AssertionError):
            judge(error, devices)
    assert _skipped(lambda: judge(46)) == ONE_PROCESS


@pytest.mark.parametrize("gpu", [[], [["/device:GPU:0", 0]]], ids=["no plane", "no event"])
def test_a_trace_without_the_gpu_is_found(gpu: list[Any]) -> None:
    def judge(planes: list[Any], refused: str = "") -> None:
        printed = {"traced": {"planes": [["/host:CPU", 9], *planes]}}
        suite.test_a_trace_has_what_the_gpu_did(_ran(printed, refused))

    judge([["/device:GPU:0 (Tesla)", 3]], suite.NO_TRACING[0])
    with pytest.raises(AssertionError):
        judge(gpu)
    assert suite.NO_TRACING[0] in _skipped(lambda: judge(gpu, f"E {suite.NO_TRACING[0]}"))
    with pytest.raises(pytest.fail.Exception, match="no libdevice"):
        suite.done(_ran({"traced": {"error": "no libdevice"}}), "traced")


@pytest.mark.parametrize(
    "change",
    [
        {"type": "float32"},
        {"device": CPU},
        {"losses": [2.0, 1.502, float("nan")]},
        {"losses": [2.0, 1.502, 1.02]},
        {"losses": [2.0, 2.0], "wanted": [2.0, 2.0]},
        {"losses": [], "wanted": []},
    ],
)
def test_a_wrong_step_is_found(change: Json) -> None:
    losses = {"losses": [2.0, 1.502, 1.0], "wanted": [2.001, 1.5, 1.0]}
    step = {"device": PLACE.format(0), "type": "float16", **losses}
    assert wrong_step(step) == []
    assert wrong_step({**step, **change})


def test_a_wrong_curve_is_found() -> None:
    # What XLA gave on a CPU, with TensorFlow 2.15.
    curve = [-7.12325382232666, -4.05659294128418, -2.07022762298584, -0.761902391910553, 0.0]
    curve += [0.2802882194519043, 0.2801748514175415, 0.20196586847305298, 0.13046693801879883]
    good = {"device": PLACE.format(0), "values": curve}
    assert wrong_curve(good) == []
    assert len(wrong_curve({**good, "device": CPU})) == 1
    assert len(wrong_curve({**good, "values": [*curve[:8], 0.1305]})) == 1
