"""Expectations of images for tests: whole ones of each kind, and a part of one."""

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
PARTIAL: dict[str, Any] = {
    "partial": True,
    "name": "me/mine",
    "tensorflow": "2.2",
    "variant": "cpu",
    "pins": {"tensorflow": "2.2"},
    "horovodrun": False,
    "gpu": {},
}
