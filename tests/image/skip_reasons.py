"""The only reasons for which a check may be skipped, by suite; every other skip is a failure.

A check that this machine cannot make is skipped, so that nobody takes it for a passed one. A check
that the *image* has no need of does not exist (see `conftest.py`).
"""

from __future__ import annotations

import re
from typing import NoReturn

import pytest

NEEDS_GPU = "gpu_runs"
NO_DRIVER = "no NVIDIA driver: "
#: Where two ranks cannot share the only GPU: by its own mode, or with an old NCCL.
NOT_PROVED = "not proved: one GPU has nothing to reduce with"
ONE_PROCESS = "not proved: the GPU serves one process at a time"

_GPU = r"(device \d+ of \d+: )?.+, capability \d+\.\d+; "
#: What only a machine with a GPU can tell of.
OF_THE_MACHINE = (
    re.compile(re.escape(NO_DRIVER) + r".+"),
    re.compile(r"driver too old \(found (CUDA )?[\d.]+, needs [\d.]+\)"),
    re.compile(rf"GPU too new for CUDA \d+ \({_GPU}CUDA [\d.]+ knows up to [\d.]+\)"),
    re.compile(rf"GPU too old for TensorFlow \({_GPU}its kernels begin at [\d.]+\)"),
    re.compile(rf"{NOT_PROVED}( \(two ranks on it: .+\))?"),
    re.compile(re.escape(ONE_PROCESS)),
    re.compile(r"the driver lets nobody trace a GPU here \(CUPTI_ERROR_\w+\)"),
)
#: What every suite may say that starts TensorFlow.
OF_THE_IMPORT = (
    re.compile(
        r"TensorFlow 1\.1[0-3] for GPUs cannot be imported without a driver \(libcuda\.so\.1\)"
    ),
)


def no_driver(why: str) -> str:
    """Return the reason where there is no driver, or no GPU for it."""
    return f"{NO_DRIVER}{why}"


def driver_too_old(found: str, needs: str) -> str:
    """Return the reason where the driver does not know the image's CUDA."""
    return f"driver too old (found {found}, needs {needs})"


def gpu_too_new(gpu: str, cuda: str, newest: str) -> str:
    """Return the reason where the image's CUDA does not know the GPU."""
    major = cuda.partition(".")[0]
    return f"GPU too new for CUDA {major} ({gpu}; CUDA {cuda} knows up to {newest})"


def gpu_too_old(gpu: str, oldest: str) -> str:
    """Return the reason where the wheel has no code that the GPU can run."""
    return f"GPU too old for TensorFlow ({gpu}; its kernels begin at {oldest})"


def not_proved(lost: str) -> str:
    """Return the reason where one rank reduced alone; `lost` is how two ended that were tried."""
    return f"{NOT_PROVED} ({lost})" if lost else NOT_PROVED


def no_tracing(word: str) -> str:
    """Return the reason where the driver refuses to say what a GPU does, in CUPTI's word."""
    return f"the driver lets nobody trace a GPU here ({word})"


def no_import(tensorflow: tuple[int, int]) -> str:
    """Return the reason where TensorFlow cannot even be imported."""
    major, minor = tensorflow
    return f"TensorFlow {major}.{minor} for GPUs cannot be imported without a driver (libcuda.so.1)"


def skip(reason: str) -> NoReturn:
    """Skip the test; `forbidden` judges the reason afterwards, as it does that of every skip."""
    pytest.skip(reason)


def forbidden(suite: str, reason: str) -> bool:
    """Return whether a check of this suite may not be skipped for this reason."""
    known = OF_THE_MACHINE if suite == NEEDS_GPU else OF_THE_IMPORT
    return not any(pattern.fullmatch(reason) for pattern in known)
