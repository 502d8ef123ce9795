"""The programs that run in the images, run here: on a driver and on libraries that are made up."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from container import Container

PROGRAMS = Path(__file__).resolve().parents[2] / "image" / "programs"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return how to import a program."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    return __import__


def _write(pointer: Any, value: int) -> int:
    pointer._obj.value = value
    return 0


class FakeDriver:
    """libcuda of a machine with these GPUs; `init` is what cuInit answers."""

    def __init__(self, *gpus: tuple[str, int, int], version: int = 12020, init: int = 0) -> None:
        self.gpus, self.version, self.init = gpus, version, init

    def cuDriverGetVersion(self, pointer: Any) -> int:  # noqa: N802
        return _write(pointer, self.version)

    def cuInit(self, flags: int) -> int:  # noqa: N802
        assert flags == 0
        return self.init

    def cuDeviceGetCount(self, pointer: Any) -> int:  # noqa: N802
        return _write(pointer, len(self.gpus))

    def cuDeviceGet(self, pointer: Any, ordinal: int) -> int:  # noqa: N802
        return _write(pointer, ordinal + 40)  # a handle is not its number

    def cuDeviceGetAttribute(self, pointer: Any, attribute: int, device: int) -> int:  # noqa: N802
        _, major, minor = self.gpus[device - 40]
        return _write(pointer, {75: major, 76: minor, 20: 3}[attribute])

    def cuDeviceGetName(self, buffer: Any, size: int, device: int) -> int:  # noqa: N802
        buffer.value = self.gpus[device - 40][0].encode()[: size - 1]
        return 0


def _ask(program: Any, monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> dict[str, Any]:
    module = program("driver")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: {"libcuda.so.1": driver}[name])
    answer: dict[str, Any] = module.ask("535.104.05")
    return answer


def test_a_driver_tells_its_gpus(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver(("Tesla V100", 7, 0), ("NVIDIA A100", 8, 0))
    assert _ask(program, monkeypatch, driver) == {
        "kernel": "535.104.05",
        "error": None,
        "cuda": 12020,
        "init": 0,
        "devices": [
            {"name": "Tesla V100", "capability": "7.0", "mode": 3},
            {"name": "NVIDIA A100", "capability": "8.0", "mode": 3},
        ],
    }


@pytest.mark.parametrize(
    ("change", "wanted", "error"),
    [
        ({}, 0, 0),
        ({}, 25, 0),
        ({}, 26, 2),
        ({"cuCtxCreate_v2": 46}, 25, 46),
        ({"cuInit": 100, "cuCtxCreate_v2": 46}, 0, 100),
    ],
)
def test_room_on_a_gpu_is_asked_for(
    program: Any, change: dict[str, int], wanted: int, error: int
) -> None:
    def get(free: Any, total: Any) -> int:
        return _write(free, 100) + _write(total, 200)

    codes = {"cuInit": 0, "cuDeviceGet": 0, "cuCtxCreate_v2": 0, **change}
    driver = SimpleNamespace(
        **{name: lambda *_, code=code: code for name, code in codes.items()},
        cuMemGetInfo_v2=get,
        cuMemAlloc_v2=lambda _, size: 0 if size.value * 4 <= 100 else 2,
    )
    free = 100 if error in (0, 2) else 0
    assert program("gpu_room").room(driver, wanted) == {
        "free": free,
        "wanted": wanted,
        "error": error,
    }


def test_a_stub_is_asked_for_no_device(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _ask(program, monkeypatch, FakeDriver(("never", 1, 0), init=-1))
    assert (answer["init"], answer["devices"]) == (-1, [])


def test_without_a_driver_the_loaders_words_are_the_reason(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = program("driver")
    monkeypatch.setattr(module, "LIBRARY", "libno-such-driver.so.1")
    answer = module.ask(None)
    assert "libno-such-driver.so.1: cannot open shared object file" in answer["error"]
    assert (answer["cuda"], answer["init"], answer["devices"]) == (None, None, [])


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  418.39  Sat Feb  9 19:19:37 CST 2019",
            "418.39",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build",
            "570.124.06",
        ),
        ("something else", None),
    ],
)
def test_the_kernel_modules_version(
    program: Any, tmp_path: Path, line: str, version: str | None
) -> None:
    (tmp_path / "version").write_text(f"{line}\nGCC version:  gcc 7.3.0\n")
    assert program("driver").kernel_version(str(tmp_path / "version")) == version
    assert program("driver").kernel_version(str(tmp_path / "none")) is None


SECTION = struct.Struct("<IIQQQQIIQQ")


def _elf(needed: list[str], undefined: list[str], defined: list[str], code: bytes = b"") -> bytes:
    """Return an ELF file of a string table, symbols, needs and GPU code, and nothing else."""
    strings, at = b"\0", {}
    for name in [*needed, *undefined, *defined]:
        at[name] = len(strings)
        strings += name.encode() + b"\0"
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    symbols += b"".join(struct.pack("<IBBHQQ", at[n], 18, 0, 0, 0, 0) for n in undefined)
    symbols += b"".join(struct.pack("<IBBHQQ", at[n], 18, 0, 7, 64, 8) for n in defined)
    dynamic = b"".join(struct.pack("<qQ", 1, at[n]) for n in needed) + struct.pack("<qQ", 0, 0)
    fatbin = len(strings)
    strings += b".nv_fatbin\0"
    parts = [(3, strings, 0), (11, symbols, 24), (6, dynamic, 16), (1, code, 0)]
    headers, body = SECTION.pack(*[0] * 10), b""
    for kind, content, size in parts:
        offset = 64 + len(body)
        headers += SECTION.pack(
            fatbin if kind == 1 else 0, kind, 0, 0, offset, len(content), 1, 0, 8, size
        )
        body += content
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 5, 1
    )
    return header + body + headers


def test_an_elf_files_needs_and_calls(program: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.so"
    path.write_bytes(_elf(["liba.so.1", "libb.so"], ["ncclAllReduce"], ["own"]))
    with program("elf_file").opened(str(path)) as elf:
        assert elf.needed() == ["liba.so.1", "libb.so"]
        assert elf.undefined() == ["ncclAllReduce"]
        assert elf.defined() == ["own"]


@pytest.mark.parametrize(
    "content", [b"\x7fELF\x01\x01", b"#!/bin/sh\n" * 20, b"\x7fELF\x02\x01" + bytes(58)]
)
def test_what_is_no_such_file_is_refused(program: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.so").write_bytes(content)
    with (
        pytest.raises((ValueError, struct.error)),
        program("elf_file").opened(str(tmp_path / "a.so")),
    ):
        pass


def test_what_the_packages_ask_for(program: Any, tmp_path: Path) -> None:
    site = tmp_path
    for folder in ("tensorflow_core/python", "horovod/tensorflow", "numpy"):
        (site / folder).mkdir(parents=True)
    (site / "tensorflow_core" / "libframework.so.2").write_bytes(
        _elf(["libcudart.so.10.1"], [], [])
    )
    internal = _elf(["libframework.so.2", "libcudart.so.10.1"], [], ["ncclOwn"])
    (site / "tensorflow_core" / "python" / "_internal.so").write_bytes(internal)
    (site / "tensorflow_core" / "python" / "a.so.txt").write_text("no ELF file")
    library = _elf(["libnccl.so.2", "libframework.so.2"], ["ncclAllReduce", "MPI_Init"], [])
    (site / "horovod" / "tensorflow" / "mpi_lib.so").write_bytes(library)
    (site / "numpy" / "a.so").write_bytes(_elf(["libnot-asked.so"], [], []))
    assert program("elf_needs").needs(str(site), ["tensorflow*", "horovod"]) == {
        "files": 3,
        "needed": {
            "libcudart.so.10.1": [
                "tensorflow_core/libframework.so.2",
                "tensorflow_core/python/_internal.so",
            ],
            "libnccl.so.2": ["horovod/tensorflow/mpi_lib.so"],
        },
        "calls": {"horovod/tensorflow/mpi_lib.so": ["ncclAllReduce"]},
    }


def _fatbin(*codes: tuple[int, int]) -> bytes:
    """Return a container of entries: each a kind, a compute capability, and 16 bytes."""
    one = [struct.pack("<HHIQ12xI32x", kind, 0, 64, 16, sm) + bytes(16) for kind, sm in codes]
    content = b"".join(one)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def test_the_gpus_that_a_library_has_code_for(program: Any, tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    # Two files were compiled, each with a container; the linker aligned the second.
    data = _fatbin((2, 70), (2, 90), (1, 90)) + bytes(8) + _fatbin((2, 70), (2, 80))
    (tmp_path / "horovod" / "a.so").write_bytes(_elf([], [], [], data))
    (tmp_path / "horovod" / "b.so").write_bytes(_elf([], [], []))
    (tmp_path / "horovod" / "c.so").write_text("no ELF file")
    found = program("elf_cubins").cubins(str(tmp_path), ["horovod"])
    assert found == {"horovod/a.so": {"native": ["7.0", "8.0", "9.0"], "ptx": ["9.0"]}}


def test_a_librarys_wheel_is_the_one_that_records_it(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    for name, file in (("nvidia_a_cu11-11.8.89", "a.so"), ("nvidia_b_cu11-8.6.0", "b.so.8")):
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "RECORD").write_text(f"nvidia/lib/{file},sha256=x,1\n")
    wheel_of = program("shared_libraries").wheel_of
    assert wheel_of(str(tmp_path / "nvidia" / "lib" / "b.so.8")) == "8.6.0"
    assert wheel_of(str(tmp_path / "nvidia" / "lib" / "b.so")) is None
    assert wheel_of("/usr/lib/libc.so.6") is None
    assert wheel_of(None) is None


def test_programs_share_a_start_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its own state, outputs and exit code, and none stops those that follow.

    Where the start itself fails, each runs alone and tells in its own way.
    """
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    texts = {
        "quiet_tensorflow": "import os\nSTART, SEEN = os.getpid(), []",
        "counts": "import sys, quiet_tensorflow as q\nq.SEEN.append(1)\n"
        "print(q.START, len(q.SEEN), __name__, sys.argv[1])",
        "fails": "print('before', flush=True)\nraise ValueError('no')",
        "dies": "import os\nos.kill(os.getpid(), 9)",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "one_start.py").write_bytes((PROGRAMS / "one_start.py").read_bytes())

    class Here:
        def run(self, command: str, *_: str) -> Any:
            words = shlex.split(command)
            ran = subprocess.run(words, capture_output=True, text=True, check=False)
            return SimpleNamespace(rc=ran.returncode, stdout=ran.stdout, stderr=ran.stderr)

    commands = (["counts.py", "a"], ["fails.py"], ["dies.py"], ["counts.py", "b"])
    here, server = Container(Here(), str(tmp_path)), tmp_path / "one_start.socket"
    try:
        first, failed, died, last = (here.forked(*command, seconds=30) for command in commands)
    finally:
        server.unlink(missing_ok=True)
    said = [ran.output.split() for ran in (first, last)]
    assert [words[1:] for words in said] == [["1", "__main__", "a"], ["1", "__main__", "b"]]
    assert said[0][0] == said[1][0], "a second server was started"
    assert (failed.exit_code, failed.stdout) == (1, "before\n")
    assert failed.stderr.endswith("ValueError: no\n")
    assert died.exit_code == 137
    (tmp_path / "quiet_tensorflow.py").write_text("raise ImportError('no driver')")
    (tmp_path / "catches.py").write_text(
        "try: import quiet_tensorflow\nexcept ImportError as e: print(e)"
    )
    assert here.forked("catches.py", seconds=30).output == "no driver\n"


class Versions:
    """Three libraries in one; the run time of CUDA answers with an error."""

    class _Call:
        restype: object = ctypes.c_int

        def __call__(self) -> int:
            return 7603

    cudnnGetVersion = _Call()  # noqa: N815

    def cudaRuntimeGetVersion(self, _pointer: Any) -> int:  # noqa: N802
        return 35

    def ncclGetVersion(self, pointer: Any) -> int:  # noqa: N802
        return _write(pointer, 2408)


def test_a_library_that_cannot_be_asked_leaves_the_others(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, real = program("gpu_versions"), ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Versions() if name == "c" else real(name))
    found = module.versions("libc.so.6", "libno.so.9", "c")
    assert "cudaRuntimeGetVersion" in found["cuda"]["status"]
    assert "libno.so.9: cannot open" in found["cudnn"]["status"]
    assert found["nccl"] == {"status": 0, "version": 2408}


def test_what_setuptools_brings_for_itself_is_not_installed(tmp_path: Path) -> None:
    vendored = tmp_path / "setuptools" / "_vendor"
    for folder, name in ((tmp_path, "a"), (vendored, "b")):
        metadata = folder / f"{name}-1.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Name: {name}\nVersion: 1\n", encoding="utf-8")
    words = [sys.executable, "-S", str(PROGRAMS / "installed.py")]
    environment = {"PYTHONPATH": f"{tmp_path}:{vendored}"}
    found = json.loads(subprocess.check_output(words, env=environment))
    assert found["distributions"] == [["a", "1"]]
