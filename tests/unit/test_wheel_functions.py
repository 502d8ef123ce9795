"""What stand-ins for NVIDIA's libraries are made from: names in wheels, and in headers."""

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from standin import wheel_functions as module
from standin.nvidia_files import Headers
from standin.wheel_functions import by_library, functions_in, wheel_functions

NAMES = ("cublasCreate_v2", "cuInit", "cudaMalloc", "__cudaRegisterVar", "cudnnCreate")
OTHERS = ("cudnn_rewriter", "cublas", "custom", "__cudaRegisterLinkedBinary_1", "xcuInit")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "x-1-py3-none-any.whl"
    strings = b"".join(b"\0%s\0code" % name.encode() for name in (*NAMES, *OTHERS))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/lib.so.2", strings)
        archive.writestr("x/readme.txt", b"\0cuGone\0")
    return path


@pytest.mark.parametrize("chunk", [7, 64, 1 << 20])
def test_names_in_a_wheel(wheel: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a chunk ends within a name."""
    monkeypatch.setattr(module, "_CHUNK", chunk)
    monkeypatch.setattr(module, "_LONGEST", 40)
    assert by_library(functions_in(wheel)) == {
        "cublas": {"cublasCreate_v2"},
        "cuda": {"cuInit"},
        "cudart": {"cudaMalloc", "__cudaRegisterVar"},
        "cudnn": {"cudnnCreate"},
    }


def test_what_the_wheels_of_one_cuda_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {"9.0": ["a==1 --hash=1", "a==2 --hash=2"], "10.0": ["a==3 --hash=3"]}
    for line, names in (("a-1", "cuInit\n"), ("a-2", "cuInit\ncuExit\n"), ("a-3", "cuOther\n")):
        (tmp_path / f"functions-{line}").mkdir()
        (tmp_path / f"functions-{line}" / "cuda.txt").write_text(names)
    monkeypatch.setattr(module, "locked_wheels", lambda _: lines)
    context: Any = SimpleNamespace(stored=lambda name, *_: tmp_path / name)
    found = wheel_functions(context)
    assert found == {"9.0": {"cuda": {"cuInit", "cuExit"}}, "10.0": {"cuda": {"cuOther"}}}
    header = b"extern __host__ cudaError_t CUDARTAPI cudaFree(void *devPtr);\n cudaNot(1);"
    headers = Headers({"cuda_runtime_api.h": header}, {}, "", found)
    assert headers.functions_of("cuda", "9.0") == ["cuExit", "cuInit"]
    assert headers.functions_of("cudart", "9.0") == ["cudaFree"]
    assert headers.functions_of("cufft", "9.0") == []
