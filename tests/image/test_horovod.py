"""Suite `horovod`: two ranks reduce, share and gather exactly, and train to equal weights.

One start gives all results, as a user without a name and with a read-only root: `nodes` has Horovod
under mpirun, `running` has ranks as root. Each rank writes its own file, so a rank that is missing
fails the suite, and two processes that each believe to be alone cannot pass for two ranks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from expectation import KERAS_2, USE_KERAS_2
from mpi import HOROVODRUN, mpirun
from run_modes import hardened

if TYPE_CHECKING:
    from pathlib import Path

    from container import Container, Ran
    from expectation import Expectation
    from lab import Lab

pytestmark = pytest.mark.usefixtures("importable")
WITH_MPI = True
LASTS = 9
SECONDS = 180
SAME_NUMBER = 1e-5  # the weights are small differences of larger float32 numbers
OTHER_WEIGHTS = 1e-2  # Adam moves a weight by as much in a step
WAYS = ("fit", "loop")
DTYPES = ("float32", "int32", "int64")

# What rank r brings (programs/horovod_rank.py): float32 [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]] (r + 1),
# int32 [2**24 + 1 + r, -7 (r + 1), r], int64 the same from 2**53 + 1. All are exact in their type,
# and the first integers are not exact in the float of that size.
SUM = {
    "float32": [[1.5, 4.5, 7.5], [10.5, 13.5, 16.5]],
    "int32": [2**25 + 3, -21, 1],
    "int64": [2**54 + 3, -21, 1],
}
MEAN = [[0.75, 2.25, 3.75], [5.25, 6.75, 8.25]]
OF_RANK_1 = {
    "float32": [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]],
    "int32": [2**24 + 2, -14, 1],
    "int64": [2**53 + 2, -14, 1],
}
#: Of (2, 0) and (1, 1), in programs/horovod_adasum.py; Horovod has Adasum from 0.19 on.
ADASUM, WITH_ADASUM = [[2.0, 0.5]], (0, 19)
ADASUM_OF = ("float16", "float32", "float64", "float64 beyond the buffer")
JOINED = [[0, 0], [1, 0], [1, 1]]  # r + 1 rows of rank r: its number, the row's

# The optimizer's step (the same program): weights before, learning rate, and each rank's data.
START = (0.1, -0.2)
LEARNING_RATE = 0.1
FEATURES = (((1.1, 2.3), (3.7, -1.9)), ((0.3, 1.7), (2.9, 2.1)))
TARGETS = ((1.3, 2.7), (3.1, -1.1))


class Ranks:
    """What the ranks of one start wrote, read when a test asks."""

    def __init__(self, job: Ran, files: Ran) -> None:
        self._job = job
        self._files = files

    def said(self) -> str:
        """Return all that was printed."""
        __tracebackhide__ = True
        return self._job.output + self._job.stderr

    def both(self) -> list[dict[str, Any]]:
        """Return both ranks' results in order; fails the test where one is missing."""
        __tracebackhide__ = True
        files = self._job if self._job.failed else self._files
        results = [json.loads(line) for line in files.output.splitlines()]
        ranks = sorted((result["rank"], result["size"]) for result in results)
        assert ranks == [(0, 2), (1, 2)], f"(rank, size) of those that wrote a result: {ranks}"
        return sorted(results, key=lambda result: int(result["rank"]))

    def must_have(self, collective: str, dtype: str, values: object) -> None:
        """Fail the test unless `collective` gave both ranks these values, in this type."""
        __tracebackhide__ = True
        expected = {"dtype": dtype, "values": values}
        for result in self.both():
            found = result["collectives"][f"{collective} {dtype}"]
            assert found == expected, f"{collective} {dtype} on rank {result['rank']}"


@pytest.fixture(scope="module")
def stranger(lab: Lab, profile: Path) -> Container:
    """Return the container of a user that the image does not know, with a read-only root."""
    return lab.start("stranger", *hardened("unknown", profile))


@pytest.fixture(scope="module")
def ranks(stranger: Container, expect: Expectation, launcher: str) -> Ranks:
    """Start two ranks, once for all tests.

    The home of an unknown user is /, where horovodrun cannot keep its cache: one gives HOME.
    """
    folder = stranger.fresh_folder()
    keras = USE_KERAS_2 if launcher.endswith(KERAS_2) else ()
    start = (*keras, *(HOROVODRUN if "horovodrun" in launcher else mpirun(expect.mpi, 2)))
    program = ("env", "HOME=/tmp", *start, "python", stranger.path_of("horovod_rank.py"), folder)
    job = stranger.run(*program, seconds=SECONDS)
    return Ranks(job, stranger.run("sh", "-c", f"cat {folder}/rank-*.json", seconds=10))


def test_two_ranks_report(ranks: Ranks) -> None:
    """Both ranks ran to their end, and knew of each other."""
    assert len(ranks.both()) == 2


def test_ranks_do_not_try_to_read_each_others_memory(ranks: Ranks) -> None:
    """The engine refuses it to the stranger, and users think of an error."""
    assert "Read -1" not in ranks.said(), ranks.said()


@pytest.mark.parametrize("dtype", DTYPES)
def test_allreduce_sums_exactly(ranks: Ranks, dtype: str) -> None:
    """Both ranks get the sum of what both brought."""
    ranks.must_have("sum", dtype, SUM[dtype])


def test_allreduce_averages_exactly(ranks: Ranks) -> None:
    """Both ranks get the mean of what both brought: Horovod's default."""
    ranks.must_have("mean", "float32", MEAN)


@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcast_shares_the_root_ranks_values(ranks: Ranks, dtype: str) -> None:
    """Both ranks get what rank 1 brought, where the default root would be 0."""
    ranks.must_have("broadcast", dtype, OF_RANK_1[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_allgather_joins_in_order_of_rank(ranks: Ranks, dtype: str) -> None:
    """Both ranks get all rows, though one brought more than the other."""
    ranks.must_have("allgather", dtype, JOINED)


def test_adasum_is_exact(ranks: Ranks, expect: Expectation) -> None:
    """Both ranks get what Adasum makes of what both brought, in every type and size."""
    has = tuple(map(int, expect.pins["horovod"].split(".")[:2])) >= WITH_ADASUM
    expected = {name: {"dtype": name.split()[0], "pairs": ADASUM} for name in ADASUM_OF}
    for result in ranks.both():
        assert result["adasum"] == (expected if has else None), f"on rank {result['rank']}"


def test_ranks_end_a_step_with_the_same_bits(ranks: Ranks) -> None:
    """After a step on different data the weights are bit-equal, however it is written."""
    first, second = (result["weight bits"] for result in ranks.both())
    assert first == second, f"weights: rank 0 {first}, rank 1 {second}"


def test_step_is_one_on_the_averaged_gradient(ranks: Ranks, expect: Expectation) -> None:
    """The weights are those of one process that steps along the mean of both gradients.

    By DistributedOptimizer; in 2.x, where that is Keras' optimizer, by DistributedGradientTape too.
    """
    ways = ("keras", "tape") if expect.tensorflow_minor >= (2, 0) else ("session",)
    expected = {way: pytest.approx(averaged_step(), rel=SAME_NUMBER) for way in ways}
    for result in ranks.both():
        assert result["weights"] == expected, f"weights on rank {result['rank']}"


@pytest.mark.parametrize("way", WAYS)
def test_training_by_data_of_their_own_leaves_ranks_equal(ranks: Ranks, way: str) -> None:
    """The weights are bit-equal after steps of Adam, though nothing but gradients was shared."""
    first, second = (result["trained"][way]["together"] for result in ranks.both())
    assert first == second, (
        f"{way}: the ranks' weights differ by {apart(first, second)}: gradients were not reduced"
    )


@pytest.mark.parametrize("way", WAYS)
def test_training_is_not_that_of_one_rank(ranks: Ranks, way: str) -> None:
    """The same program without Horovod ends elsewhere: on each rank, and not at the same place."""
    results = [result["trained"][way] for result in ranks.both()]
    alone = [result["alone"] for result in results]
    distances = [
        apart(*alone),
        *(apart(result["together"], one) for result, one in zip(results, alone, strict=True)),
    ]
    assert min(distances) > OTHER_WEIGHTS, (
        f"{way}: weights of other trainings differ by {distances}"
    )


def apart(first: list[float], second: list[float]) -> float:
    """Return the largest difference of two lists of weights."""
    return max(abs(a - b) for a, b in zip(first, second, strict=True))


def averaged_step() -> list[float]:
    """Return the weights after one step along the mean of the ranks' gradients."""
    gradients = [gradient(x, y) for x, y in zip(FEATURES, TARGETS, strict=True)]
    means = [sum(parts) / len(parts) for parts in zip(*gradients, strict=True)]
    return [w - LEARNING_RATE * mean for w, mean in zip(START, means, strict=True)]


def gradient(rows: tuple[tuple[float, float], ...], targets: tuple[float, ...]) -> list[float]:
    """Return the gradient at START of the mean over the rows of (w · row - target)²."""
    errors = [
        sum(w * x for w, x in zip(START, row, strict=True)) - target
        for row, target in zip(rows, targets, strict=True)
    ]
    columns = zip(*rows, strict=True)
    return [
        2 * sum(e * x for e, x in zip(errors, column, strict=True)) / len(rows)
        for column in columns
    ]
