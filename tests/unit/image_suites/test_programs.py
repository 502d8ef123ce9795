"""The programs that run in the images, run here: on a driver and on libraries that are made up."""

import ctypes
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from container import Container

from support.project_copy import PROGRAMS


def _write(pointer: Any, value: int) -> int:
    pointer._obj.value = value
    return 0


def _driver(gpus: list[tuple[str, int, int]], init: int) -> Any:
    """Return libcuda of a machine with these GPUs; `init` is what cuInit answers."""

    def name(buffer: Any, size: int, device: int) -> None:
        buffer.value = gpus[device - 40][0].encode()[: size - 1]

    def attribute(at: Any, attribute: int, device: int) -> int:
        _, major, minor = gpus[device - 40]
        return _write(at, {75: major, 76: minor, 20: 3}[attribute])

    return SimpleNamespace(
        cuDriverGetVersion=lambda at: _write(at, 12020),
        cuInit=lambda _flags: init,
        cuDeviceGetCount=lambda at: _write(at, len(gpus)),
        cuDeviceGet=lambda at, ordinal: _write(at, ordinal + 40),  # a handle is not its number
        cuDeviceGetAttribute=attribute,
        cuDeviceGetName=name,
    )


@pytest.mark.parametrize("init", [0, -1], ids=["driver", "stub"])
def test_a_driver_tells_its_gpus_and_a_stub_is_asked_for_none(
    import_program: Any, monkeypatch: pytest.MonkeyPatch, init: int
) -> None:
    gpus = [("Tesla V100", 7, 0), ("NVIDIA A100", 8, 0)]
    monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": _driver(gpus, init)}.__getitem__)
    devices = [{"name": name, "capability": f"{a}.{b}", "mode": 3} for name, a, b in gpus]
    known = {"kernel": "535.104.05", "error": None, "cuda": 12020, "init": init}
    found = import_program("driver").ask("535.104.05")
    assert found == {**known, "devices": [] if init else devices}


def test_without_a_driver_the_loaders_words_are_the_reason(
    import_program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_program("driver"), "LIBRARY", "libno-such-driver.so.1")
    answer = import_program("driver").ask(None)
    assert "libno-such-driver.so.1: cannot open" in answer.pop("error")
    assert answer == {"kernel": None, "cuda": None, "init": None, "devices": []}


@pytest.mark.parametrize(
    ("init", "create", "wanted", "error"),
    [(0, 0, 0, 0), (0, 0, 25, 0), (0, 0, 26, 2), (0, 46, 25, 46), (100, 46, 0, 100)],
)
def test_room_on_a_gpu_is_asked_for(
    import_program: Any, init: int, create: int, wanted: int, error: int
) -> None:
    """The first error counts: of 100 bytes that are free, a process gets a quarter."""
    driver = SimpleNamespace(
        cuInit=lambda _flags: init,
        cuDeviceGet=lambda *_: 0,
        cuCtxCreate_v2=lambda *_: create,
        cuMemGetInfo_v2=lambda free, total: _write(free, 100) + _write(total, 200),
        cuMemAlloc_v2=lambda _, size: 0 if size.value * 4 <= 100 else 2,
    )
    free = 100 if error in (0, 2) else 0
    found = import_program("gpu_room").room(driver, wanted)
    assert found == {"free": free, "wanted": wanted, "error": error}


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  418.39  Sat Feb  9 2019", "418.39"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  R", "570.124.06"),
        ("something else", None),
    ],
)
def test_the_kernel_modules_version(
    import_program: Any, tmp_path: Path, line: str, version: str | None
) -> None:
    (tmp_path / "version").write_text(f"{line}\nGCC version:  gcc 7.3.0\n")
    assert import_program("driver").kernel_version(str(tmp_path / "version")) == version
    assert import_program("driver").kernel_version(str(tmp_path / "none")) is None


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
        "dies": "import os\nprint('before', flush=True)\nos.kill(os.getpid(), 9)",
        "catches": "try: import quiet_tensorflow\nexcept ImportError as e: print(e)",
        "one_start": (PROGRAMS / "one_start.py").read_text(),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)

    class Here:
        def run(self, command: str, *_: str) -> Any:
            words = shlex.split(command)
            ran = subprocess.run(words, capture_output=True, text=True, check=False)
            return SimpleNamespace(rc=ran.returncode, stdout=ran.stdout, stderr=ran.stderr)

    here = Container(Here(), str(tmp_path))
    try:
        first = here.forked("counts.py", "a", seconds=30)
        died = here.forked("dies.py", seconds=30)
        last = here.forked("counts.py", "b", seconds=30)
    finally:
        (tmp_path / "one_start.socket").unlink(missing_ok=True)
    start = first.output.split()[0]
    assert first.output == f"{start} 1 __main__ a\n"
    assert last.output == f"{start} 1 __main__ b\n", "a second server was started"
    assert (died.exit_code, died.stdout) == (137, "before\n")
    (tmp_path / "quiet_tensorflow.py").write_text("raise ImportError('no driver')")
    assert here.forked("catches.py", seconds=30).output == "no driver\n"


def test_a_library_that_cannot_be_asked_leaves_the_others(
    import_program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nccl = SimpleNamespace(ncclGetVersion=lambda at: _write(at, 2408))
    module, real = import_program("gpu_versions"), ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: nccl if name == "c" else real(name))
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


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (b"sleep infinity", b"sleep"),
        (b"sh -c sleep", b"sh"),
        (b"/usr/libexec/qemu-binfmt/aarch64-binfmt-P /usr/bin/sleep sleep infinity", b"sleep"),
        (b"/usr/bin/qemu-aarch64-static sleep infinity", b"sleep"),
    ],
)
def test_an_emulator_hides_no_name(import_program: Any, words: bytes, name: bytes) -> None:
    names = import_program("surroundings").names_in(words.split())
    assert name in names
    assert b"-c" not in names
