"""Suite `gpu_runs`: TensorFlow computes on every GPU of this machine, and NCCL reduces over all.

The only suite that needs a GPU. Where there is none that the image can use, every check is skipped
with that reason; that is no verdict on the image. Where the engine offers GPUs and the image does
not see them, every check fails.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from mpi import mpirun
from skip_reasons import NOT_PROVED, skip

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation

SECONDS = 300  # the first use of a GPU copies all kernels to it
SIDE, LENGTH = 32, 1000  # of programs/gpu_numbers.py and programs/nccl_rank.py


@pytest.fixture(scope="module")
def numbers(container: Container, gpus: list[int]) -> Ran:
    """Compute on each GPU that can be used."""
    return container.program("gpu_numbers.py", listed(gpus), seconds=SECONDS)


@pytest.fixture(scope="module")
def reduced(container: Container, gpus: list[int], expect: Expectation) -> tuple[Ran, Ran]:
    """Start a rank a GPU; return the job, and the files that its ranks wrote."""
    folder = container.fresh_folder()
    start = ("env", "NCCL_DEBUG=VERSION", *mpirun(expect.mpi_flavour, len(gpus)))
    program = ("python", container.path_of("nccl_rank.py"), folder, listed(gpus))
    job = container.run(*start, *program, seconds=SECONDS)
    return job, container.run("sh", "-c", f"cat {folder}/rank-*.json", seconds=10)


def test_no_gpu_is_left_out(faulty_gpus: list[str | None]) -> None:
    """The image can use every GPU; the checks below are made on those that it can use."""
    for fault in filter(None, faulty_gpus):
        skip(fault)


def test_every_gpu_is_listed(numbers: Ran, gpus: list[int]) -> None:
    """TensorFlow sees as many GPUs as the driver has."""
    assert numbers.json["devices"] == len(gpus)


def test_matrix_product_is_right_on_each_gpu(numbers: Ran, gpus: list[int]) -> None:
    """Each GPU, and no other device, gives the exact product."""
    products = numbers.json["products"]
    assert len(products) == len(gpus)
    assert wrong_products(products) == []


def test_allreduce_is_right_on_all_gpus(reduced: tuple[Ran, Ran], gpus: list[int]) -> None:
    """Every rank has the exact sum over all ranks, in a tensor on its GPU.

    A single rank must end well, but its sum is what it brought: that proves no allreduce.
    """
    job, files = reduced
    output = (job if job.failed else files).output
    assert wrong_sums([json.loads(line) for line in output.splitlines()], len(gpus)) == []
    if len(gpus) == 1:
        skip(NOT_PROVED)


def test_allreduce_went_through_the_pinned_nccl(
    reduced: tuple[Ran, Ran], expect: Expectation
) -> None:
    """NCCL said its version when the ranks joined, which it does when it is used."""
    assert f"NCCL version {expect.pins['nccl']}" in reduced[0].output


def listed(gpus: list[int]) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES for these GPUs."""
    return ",".join(map(str, gpus))


def wrong_products(products: list[dict[str, Any]]) -> list[str]:
    """Return the GPUs whose product is wrong, or was computed elsewhere."""
    expected = product()
    return [
        f"{one['device']}: {'right' if one['values'] == expected else 'wrong'}"
        for number, one in enumerate(products)
        if one["values"] != expected or f"GPU:{number}" not in one["device"].upper()
    ]


def product() -> list[list[float]]:
    """Return the product of the two matrices of programs/gpu_numbers.py."""
    left = [[(3 * i + 5 * j) % 17 - 8 for j in range(SIDE)] for i in range(SIDE)]
    right = [[(7 * i + 2 * j) % 13 - 6 for j in range(SIDE)] for i in range(SIDE)]
    return [
        [float(sum(row[k] * right[k][j] for k in range(SIDE))) for j in range(SIDE)] for row in left
    ]


def wrong_sums(results: list[dict[str, Any]], gpus: int) -> list[str]:
    """Return what is wrong with the ranks: one is missing, has another sum, or left its GPU."""
    ranks = sorted((one["rank"], one["size"]) for one in results)
    if ranks != [(rank, gpus) for rank in range(gpus)]:
        return [f"(rank, size) of those that wrote a result: {ranks}"]
    shares = gpus * (gpus + 1) // 2  # rank r brings r + 1 times the same
    expected = [float((index % 7 + 1) * shares) for index in range(LENGTH)]
    return [
        f"rank {one['rank']} on {one['device']}: {one['values'][:7]}"
        for one in results
        if one["values"] != expected or "GPU" not in one["device"].upper()
    ]
