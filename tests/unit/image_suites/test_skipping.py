"""A check is skipped for one of a few reasons, and each is said exactly when it is true."""

from typing import Any

import pytest
from gpu_machine import Needs, device_faults, unusable
from skip_reasons import forbidden, no_import

from support.expectations import A100, DRIVER, V100

NEEDS = Needs("10.1", "418.39", "7.5", "3.5")
K10 = {"name": "Tesla K10", "capability": "3.0"}
OLD, NEW, NONE = "driver too old (found ", "GPU too new for CUDA 10 (", "no NVIDIA driver: "


@pytest.mark.parametrize(
    ("change", "no_gpu", "begin", "fact"),
    [
        ({}, "the engine offers none", NONE, "the engine offers none"),
        ({"error": "libcuda.so.1: no such"}, None, NONE, "libcuda.so.1: no such"),
        ({"init": -1}, None, NONE, "-1 (a stub)"),
        ({"init": 100}, None, NONE, "100 (no device)"),
        ({"devices": []}, None, NONE, "no device"),
        # A library of the image before the driver's; a stub, where nothing says which driver.
        ({"cuda": 9010, "init": 803}, None, NONE, "803 (not of the kernel module's version)"),
        ({"kernel": None, "cuda": 9010, "init": 34}, None, NONE, "34 (a stub)"),
        ({"kernel": "390.48"}, "refused", OLD, "390.48, needs 418.39)"),
        ({"kernel": None, "cuda": 9010}, None, OLD, "CUDA 9.1, needs 418.39)"),
        ({"devices": [A100]}, None, NEW, "NVIDIA A100, capability 8.0; CUDA 10.1 knows up to 7.5)"),
        ({"devices": [A100, K10]}, None, NEW, "device 0 of 2: NVIDIA A100"),
        ({"devices": [K10]}, None, "GPU too old", "K10, capability 3.0; its kernels begin at 3.5)"),
    ],
)
def test_the_reason_is_the_exact_one(
    change: dict[str, Any], no_gpu: str | None, begin: str, fact: str
) -> None:
    reason = unusable({**DRIVER, **change}, NEEDS, no_gpu) or ""
    assert reason.startswith(begin)
    assert fact in reason
    assert not forbidden("gpu_runs", reason)
    assert forbidden("gpu_built", reason)
    assert forbidden("tensorflow", reason)


def test_a_gpu_that_cannot_be_used_leaves_the_others() -> None:
    devices = [A100, V100, V100]
    assert unusable({**DRIVER, "devices": devices}, NEEDS, None) is None
    reason, *others = device_faults(devices, NEEDS)
    assert others == [None, None]
    assert "device 0 of 3: NVIDIA A100" in str(reason)
    assert not forbidden("gpu_runs", str(reason))


@pytest.mark.parametrize(
    ("suite", "reason"),
    [
        *(("gpu_runs", ""), ("gpu_runs", "GPU too new"), ("gpu_runs", "no NVIDIA driver: ")),
        *(("horovod", ""), ("horovod", "no reason")),
        *(("tensorflow", no_import((1, 14))), ("gpu_runs", no_import((1, 13)))),
    ],
)
def test_any_other_reason_is_forbidden(suite: str, reason: str) -> None:
    assert forbidden(suite, reason)
    assert not forbidden("tensorflow", no_import((1, 13)))
