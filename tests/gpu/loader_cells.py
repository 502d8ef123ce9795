"""Ask TensorFlow's own loader and CUDA's run time about made-up GPUs; print one line of JSON.

    loader_cells.py CUDART "VERSION …" "CAPABILITY …"

It runs in a container whose driver is tests/support/made_up_driver.c. CUDART is the library of
CUDA's run time. `loader` maps each capability to what TensorFlow has for the GPU: machine code, PTX
or nothing. `runtime` maps each CUDA of a driver to whether the run time accepts the driver.
TensorFlow is imported once. Each question runs in a forked process, because a process initializes
the driver only once.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY = 80 << 30  # bytes
TOO_OLD = 35  # cudaErrorInsufficientDriver
NATIVE, PTX, NOTHING = "machine code", "PTX", "nothing"


def ask(question: Callable[..., str | bool], *words: str) -> Any:
    """Call a function in a child process that has not initialized the driver."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, json.dumps(question(*words)).encode("ascii"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def ask_loader(capability: str) -> str:
    """Return TensorFlow's kind of code for a GPU. Only its log tells PTX from machine code."""
    name = f"made-up GPU,{capability.replace('.', ',')}"
    os.environ["MADE_UP_GPUS"] = f"{name},{MEMORY},{MEMORY},0,0"
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        found = tf.config.list_physical_devices("GPU")
        log.seek(0)
        said = log.read().decode("utf-8", "replace")
    ignored, compiled = "Ignoring visible gpu device" in said, "jit-compiled from PTX" in said
    if ignored == bool(found):
        raise SystemExit(f"{capability}: {found}, but TensorFlow says: {said}")
    if ignored:
        return NOTHING
    return PTX if compiled else NATIVE


def ask_runtime(cudart: str, version: str) -> bool:
    """Return whether CUDA's run time accepts a driver that knows this CUDA, such as 12040."""
    os.environ["MADE_UP_VERSION"] = version
    count = ctypes.c_int()
    return int(ctypes.CDLL(cudart).cudaGetDeviceCount(ctypes.byref(count))) != TOO_OLD


def main(cudart: str, versions: str, capabilities: str) -> None:
    runtime = {version: ask(ask_runtime, cudart, version) for version in versions.split()}
    loader = {name: ask(ask_loader, name) for name in capabilities.split()}
    print(json.dumps({"loader": loader, "runtime": runtime}))


if __name__ == "__main__":
    main(*sys.argv[1:])
