"""Suite `gpu_built`: TensorFlow and Horovod were compiled for GPUs. Nothing here needs one.

It says nothing of libraries being there (`gpu_loadable`), and nothing of anything running
(`gpu_runs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gpu_libraries import NCCL
from packaging.version import Version

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation

SECONDS = 120
#: The first Horovod that says itself whether it was built with NCCL.
SAYS_SO = Version("0.18")
ALLREDUCE = "ncclAllReduce"


@pytest.fixture(scope="module")
def horovod(container: Container) -> Ran:
    """Read what Horovod's libraries ask of the loader."""
    return container.program("elf_needs.py", "horovod", seconds=SECONDS)


@pytest.mark.usefixtures("importable")
def test_tensorflow_is_built_with_cuda(container: Container) -> None:
    """TensorFlow says that it was compiled with CUDA."""
    assert container.forked("built_with_cuda.py", seconds=SECONDS).json == {"cuda": True}


@pytest.mark.with_mpi
def test_horovod_calls_nccl(horovod: Ran) -> None:
    """Horovod's library for TensorFlow takes NCCL's allreduce from a shared library."""
    calls = tensorflow_part(horovod.json["calls"])
    assert ALLREDUCE in calls, f"of NCCL Horovod calls {calls or 'nothing'}"


@pytest.mark.with_mpi
def test_horovod_needs_the_images_nccl(horovod: Ran) -> None:
    """The shared library is NCCL's: no copy that was linked in, of whatever version."""
    asking = horovod.json["needed"].get(NCCL, [])
    assert any("tensorflow" in name for name in asking), f"{NCCL} is asked for by {asking}"


@pytest.mark.with_mpi
@pytest.mark.usefixtures("importable")
def test_horovod_says_that_it_has_nccl(container: Container, expect: Expectation) -> None:
    """Horovod says so itself; before 0.18 it cannot, and the two tests above are the proof."""
    found = container.program("built_with_nccl.py", seconds=SECONDS).json["nccl"]
    wanted = True if Version(expect.pins["horovod"]) >= SAYS_SO else None
    assert found is wanted, f"Horovod {expect.pins['horovod']} says {found}, not {wanted}"


@pytest.mark.with_mpi
@pytest.mark.cuda_from("index")
def test_horovod_has_machine_code_for_each_gpu(container: Container, expect: Expectation) -> None:
    """Horovod's kernels are there for every promised capability, and as PTX of the newest."""
    found = container.program("elf_cubins.py", "horovod", seconds=SECONDS).json
    code, wanted = code_of_tensorflow(found), expect.gpu["kernels"]
    assert " ".join(code.get("native", [])) == wanted
    assert code.get("ptx") == wanted.split()[-1:]


def code_of_tensorflow(found: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """Return the code in the library for TensorFlow, the only one with kernels."""
    kinds = [kinds for file, kinds in found.items() if "tensorflow" in file]
    return kinds[0] if len(kinds) == 1 else {}


def tensorflow_part(calls: dict[str, list[str]]) -> list[Any]:
    """Return what the library for TensorFlow takes: horovod/tensorflow/mpi_lib.*.so."""
    return [name for file, names in calls.items() if "tensorflow" in file for name in names]
