"""Expectations of images for tests, and a driver that fits."""

from typing import Any

PINNED = ("tensorflow", "tensorboard", "python", "horovod", "mpi", "git", "os")
GOOD: dict[str, Any] = {
    "name": "tf-2.2-cpu-debian",
    "tensorflow": "2.2.0",
    "variant": "cpu",
    "stack": "debian",
    "pins": dict.fromkeys(PINNED, "1.0"),
    "mpi_flavour": "openmpi",
    "os_id": "debian",
    "horovodrun": True,
    "standin": False,
    "packages": {"numpy": "1.18.5"},
    "held": {},
    "gpu": {},
}
GPU: dict[str, Any] = {
    **GOOD,
    "variant": "gpu",
    "pins": {**GOOD["pins"], "cuda": "10.1", "cudnn": "7.6.3.30", "nccl": "2.4.8"},
    "held": {"libnccl2": "2.4.8-1+cuda10.1"},
    "gpu": {"cuda": "10.1", "driver": "418.39", "newest": "7.5", "oldest": "3.5"},
}
#: The same with CUDA of the Python package index: no package is held, and kernels are promised.
INDEX = {**GPU, "held": {}, "gpu": {**GPU["gpu"], "kernels": "7.0 9.0"}}
#: Without MPI and Horovod.
ALONE = {
    **GOOD,
    "mpi_flavour": None,
    "horovodrun": False,
    "pins": {name: pin for name, pin in GOOD["pins"].items() if name not in {"horovod", "mpi"}},
}
#: What the driver of a machine says whose GPUs an image can use, and GPUs that it cannot.
V100 = {"name": "Tesla V100", "capability": "7.0"}
A100 = {"name": "NVIDIA A100", "capability": "8.0"}
DRIVER: dict[str, Any] = {
    "kernel": "535.104.05",
    "error": None,
    "cuda": 12020,
    "init": 0,
    "devices": [V100, V100],
}
