"""Suite `gpu_runs`: TensorFlow computes on every GPU of this machine, and NCCL reduces over all.

The only suite that needs a GPU. Where there is none that the image can use, every check is skipped
with that reason; that is no verdict on the image. Where the engine offers GPUs and the image does
not see them, every check fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from gpu_values import NAMES, traced_events, wrong_curve, wrong_step, wrong_sums, wrong_values
from mpi import mpirun
from packaging.version import Version
from skip_reasons import ONE_PROCESS, no_tracing, not_proved, skip

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation

SECONDS = 300
#: The first start compiles the kernels of a wheel that has only PTX for the GPU.
FIRST_SECONDS = 900
#: What was compiled is kept, all of it, and only kernels that are used are compiled: each program
#: would do it again, for minutes.
KEEP = ("env", "CUDA_CACHE_MAXSIZE=4294967296", "CUDA_MODULE_LOADING=LAZY")
#: float32 values of each tensor that is reduced: two that share Horovod's buffer for fusion, one
#: that fills it, one that does not fit into it.
BUFFER = 64 << 20  # bytes
LENGTHS = (1000, 77, BUFFER // 4, BUFFER // 4 + 1)
#: The first NCCL by which ranks on one GPU can say that they are of different hosts (NCCL_HOSTID,
#: src/misc/utils.cc). It promises nothing for that, so it is no fault if they hang or end badly.
SHARES_A_GPU, SHARED_SECONDS = Version("2.5.6"), 120
COMPUTE_MODE_DEFAULT, NO_ROOM_BUT_FOR_ONE = 0, 46  # CUcomputemode, CUresult; cuda.h
#: The packages with ptxas and libdevice, by which XLA compiles for GPUs. They are for CUDA 11 and
#: newer, and TensorFlow 2.5 was the first to be compiled for such a one here.
PTXAS = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12")
#: The driver's words where it lets no user, or no virtual machine, trace a GPU.
NO_TRACING = ("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED")


@pytest.fixture(scope="module")
def numbers(container: Container, gpus: list[int]) -> Ran:
    """Compute on each GPU that can be used."""
    program = container.path_of("gpu_numbers.py")
    return container.run(*KEEP, "python", program, listed(gpus), seconds=FIRST_SECONDS)


@pytest.fixture(scope="module")
def steps(container: Container, gpus: list[int], expect: Expectation) -> Ran:
    """Do on the first GPU what this TensorFlow and this image can do."""
    tensorflow, ptxas = expect.tensorflow_minor, expect.has(*PTXAS)
    known = {"traced": True, "mixed": tensorflow >= (2, 4), "compiled": ptxas}
    parts = [name for name, wanted in known.items() if wanted]
    program = (*KEEP, "python", container.path_of("gpu_steps.py"))
    return container.run(*program, listed(gpus[:1]), *parts, seconds=SECONDS)


@dataclass(frozen=True)
class Job:
    """Ranks that ended: how many, what they printed, the files that they wrote.

    `lost` is how two ranks ended before that could not share the only GPU.
    """

    ranks: int
    ran: Ran
    files: Ran
    lost: str = ""


@pytest.fixture(scope="module")
def reduced(container: Container, gpus: list[int], ranks: int, expect: Expectation) -> Job:
    """Start the ranks; where two that share a GPU do not end well, a single one."""
    shared = ranks > len(gpus)
    job = reduce(container, gpus, ranks, expect, SHARED_SECONDS if shared else SECONDS)
    if not (shared and job.ran.failed):
        return job
    lost = f"two ranks on it: exit code {job.ran.exit_code}"
    return replace(reduce(container, gpus, len(gpus), expect, SECONDS), lost=lost)


def reduce(
    container: Container, gpus: list[int], ranks: int, expect: Expectation, seconds: int
) -> Job:
    """Return a job of so many ranks."""
    folder = container.fresh_folder()
    words = (*KEEP, "NCCL_DEBUG=VERSION", f"HOROVOD_FUSION_THRESHOLD={BUFFER}")
    start = (*words, *mpirun(expect.mpi, ranks))
    program = ("python", container.path_of("nccl_rank.py"), folder, listed(gpus))
    ran = container.run(*start, *program, *map(str, LENGTHS), seconds=seconds)
    return Job(ranks, ran, container.run("sh", "-c", f"cat {folder}/rank-*.json", seconds=10))


@pytest.fixture(scope="module")
def ranks(gpus: list[int], driver: Ran, expect: Expectation) -> int:
    """Return how many ranks are started."""
    return ranks_on(gpus, driver, expect)


def test_no_gpu_is_left_out(faulty_gpus: list[str | None]) -> None:
    """The image can use every GPU; the checks below are made on those that it can use."""
    for fault in filter(None, faulty_gpus):
        skip(fault)


def test_every_gpu_is_listed(numbers: Ran, gpus: list[int]) -> None:
    """TensorFlow sees as many GPUs as the driver has."""
    assert numbers.json["devices"] == len(gpus)


def test_matrix_product_is_right_on_each_gpu(numbers: Ran, gpus: list[int]) -> None:
    """Each GPU, and no other device, gives the exact product: cuBLAS works."""
    results = numbers.json["results"]
    assert len(results) == len(gpus)
    assert wrong_values(results, NAMES[:1]) == []


def test_convolution_and_its_gradients_are_right_on_each_gpu(numbers: Ran, gpus: list[int]) -> None:
    """Each GPU, and no other device, convolves, and derives by images and filters: cuDNN works."""
    results = numbers.json["results"]
    assert len(results) == len(gpus)
    assert wrong_values(results, NAMES[1:]) == []


def test_memory_that_grows_leaves_room_for_others(numbers: Ran) -> None:
    """Beside a TensorFlow that computes, another process gets a quarter of what was free."""
    assert numbers.json["devices"] > 0, "TensorFlow uses no GPU"
    room = numbers.json["room"]
    if room["error"] == NO_ROOM_BUT_FOR_ONE:
        skip(ONE_PROCESS)
    assert room["wanted"] > 0
    assert room["error"] == 0, f"CUDA error {room['error']}, {room['free']} bytes were free"


def test_the_check_at_start_is_silent(container: Container, numbers: Ran) -> None:
    """Where TensorFlow computes, and has compiled what it must, the entry point says nothing."""
    assert numbers.json["devices"] > 0, "TensorFlow uses no GPU"
    started = container.run("/usr/local/bin/as-user", "true", seconds=SECONDS)
    assert (started.ended_with, started.stderr) == (0, "")


@pytest.mark.since("2.3")
def test_a_trace_has_what_the_gpu_did(steps: Ran) -> None:
    """The profile of a step that TensorBoard shows has a plane of the GPU, with its kernels."""
    planes = done(steps, "traced")["planes"]
    forbids = [word for word in NO_TRACING if word in steps.stderr]
    if not traced_events(planes) and forbids:
        skip(no_tracing(forbids[0]))
    assert traced_events(planes) > 0, f"planes and their events: {planes}; {steps.stderr[-2000:]}"


@pytest.mark.since("2.4")
def test_steps_in_mixed_precision_are_those_of_float32(steps: Ran) -> None:
    """A model of Keras that computes in float16 on the GPU learns as in float32 on the CPU."""
    assert wrong_step(done(steps, "mixed")) == []


@pytest.mark.packaged(*PTXAS)
def test_a_function_that_xla_compiled_is_right(steps: Ran) -> None:
    """XLA finds ptxas and libdevice, and what they make runs."""
    assert wrong_curve(done(steps, "compiled")) == []


@pytest.mark.with_mpi
def test_allreduce_is_right_on_all_gpus(reduced: Job) -> None:
    """Every rank has the exact sums over all ranks, in tensors on its GPU.

    A single rank must end well, but its sum is what it brought: that proves no allreduce.
    """
    output = (reduced.ran if reduced.ran.failed else reduced.files).output
    results = [json.loads(line) for line in output.splitlines()]
    assert wrong_sums(results, reduced.ranks, LENGTHS) == []
    if reduced.ranks == 1:
        skip(not_proved(reduced.lost))


@pytest.mark.with_mpi
def test_allreduce_went_through_the_pinned_nccl(reduced: Job, expect: Expectation) -> None:
    """NCCL said its version when the ranks joined, which it does when it is used."""
    assert f"NCCL version {expect.pins['nccl']}" in reduced.ran.output


def listed(gpus: list[int]) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES for these GPUs."""
    return ",".join(map(str, gpus))


def ranks_on(gpus: list[int], driver: Ran, expect: Expectation) -> int:
    """Return how many ranks these GPUs serve: one each, and a single GPU two where it can."""
    alone = driver.json["devices"][gpus[0]].get("mode", 0) != COMPUTE_MODE_DEFAULT
    shared = not alone and Version(expect.pins["nccl"]) >= SHARES_A_GPU
    return 2 if len(gpus) == 1 and shared else len(gpus)


def done(steps: Ran, part: str) -> dict[str, Any]:
    """Return what a part printed; fails the test with its words where it failed."""
    __tracebackhide__ = True
    found: dict[str, Any] = steps.json[part]
    if "error" in found:
        pytest.fail(found["error"], pytrace=False)
    return found
