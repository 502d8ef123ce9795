"""A check is skipped for one of a few reasons, and each is said exactly when it is true."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_machine import CU_INIT, Needs, device_faults, unusable
from skip_reasons import forbidden, no_import

NEEDS = Needs("10.1", "418.39", "7.5", "3.5")
V100 = {"name": "Tesla V100", "capability": "7.0"}
A100 = {"name": "NVIDIA A100", "capability": "8.0"}
K10 = {"name": "Tesla K10", "capability": "3.0"}
TOO_NEW = "NVIDIA A100, capability 8.0; CUDA 10.1 knows up to 7.5)"
FINE: dict[str, Any] = {
    "kernel": "535.104.05",
    "error": None,
    "cuda": 12020,
    "init": 0,
    "devices": [V100, V100],
}


def test_a_machine_that_can_is_used() -> None:
    assert unusable(FINE, NEEDS, None) is None


@pytest.mark.parametrize(
    ("change", "no_gpu", "reason"),
    [
        ({}, "the engine offers none", "no NVIDIA driver: the engine offers none"),
        ({"error": "libcuda.so.1: no such"}, None, "no NVIDIA driver: libcuda.so.1: no such"),
        ({"init": -1}, None, "no NVIDIA driver: cuInit of libcuda.so.1 answers -1 (a stub)"),
        ({"init": 100}, None, "no NVIDIA driver: cuInit of libcuda.so.1 answers 100 (no device)"),
        ({"init": 7}, None, "no NVIDIA driver: cuInit of libcuda.so.1 answers 7 (no further word)"),
        ({"devices": []}, None, "no NVIDIA driver: it has no device"),
        (  # a library of the image before the driver's
            {"cuda": 9010, "init": 803},
            None,
            f"no NVIDIA driver: cuInit of libcuda.so.1 answers 803 ({CU_INIT[803]})",
        ),
        (  # a stub, where nothing says which driver there is
            {"kernel": None, "cuda": 9010, "init": 34},
            None,
            "no NVIDIA driver: cuInit of libcuda.so.1 answers 34 (a stub)",
        ),
        ({"kernel": "390.48"}, None, "driver too old (found 390.48, needs 418.39)"),
        ({"kernel": "390.48"}, "refused", "driver too old (found 390.48, needs 418.39)"),
        (
            {"kernel": None, "cuda": 9010},
            None,
            "driver too old (found CUDA 9.1, needs 418.39)",
        ),
        (
            {"devices": [A100]},
            None,
            f"GPU too new for CUDA 10 ({TOO_NEW}",
        ),
        (
            {"devices": [A100, K10]},
            None,
            f"GPU too new for CUDA 10 (device 0 of 2: {TOO_NEW}",
        ),
        (
            {"devices": [K10]},
            None,
            "GPU too old for TensorFlow (Tesla K10, capability 3.0; its kernels begin at 3.5)",
        ),
    ],
)
def test_the_reason_is_the_exact_one(
    change: dict[str, Any], no_gpu: str | None, reason: str
) -> None:
    assert unusable({**FINE, **change}, NEEDS, no_gpu) == reason
    assert not forbidden("gpu_runs", reason)
    assert forbidden("gpu_built", reason)
    assert forbidden("tensorflow", reason)


def test_a_gpu_that_cannot_be_used_leaves_the_others() -> None:
    devices = [V100, A100, V100]
    assert unusable({**FINE, "devices": devices}, NEEDS, None) is None
    reason = f"GPU too new for CUDA 10 (device 1 of 3: {TOO_NEW}"
    assert device_faults(devices, NEEDS) == [None, reason, None]
    assert not forbidden("gpu_runs", reason)


def test_only_old_tensorflow_cannot_be_imported() -> None:
    assert not forbidden("tensorflow", no_import((1, 13)))
    assert forbidden("tensorflow", no_import((1, 14)))
    assert forbidden("gpu_runs", no_import((1, 13)))


@pytest.mark.parametrize("reason", ["", "no reason", "GPU too new", "no NVIDIA driver: "])
@pytest.mark.parametrize("suite", ["gpu_runs", "horovod"])
def test_any_other_reason_is_forbidden(suite: str, reason: str) -> None:
    assert forbidden(suite, reason)
