"""Edits of the matrix that break its rules, at least one a rule, and what must be said of each."""

from dataclasses import dataclass

Edit = tuple[str, str]

CUDA_OF_2_1 = (
    'horovod: 0.19.1\n    cuda: {version: "10.1", documented: "10.0", why: "the wheel loads '
    'libcudart.so.10.1; with CUDA 10.0 it imports, and silently runs on the CPU"}'
)
ROW_1_10 = "{tensorflow: 1.10.0, stack: ubuntu, os: ubuntu-16.04, variants: [cpu, gpu],"
ROW_2_0 = "{tensorflow: 2.0.0, stack: ubuntu, variants: [cpu, gpu],"
PYTHON_3_8 = (
    "python:\n  # Every",
    "python:\n  3.8.20: {from: source, source: cpython-3.6.15, wheel_tag: cp38}\n  # Every",
)
ROW_1_15 = "{tensorflow: 1.15.0, stack: debian,"


def horovod_on_debian(old: str, new: str) -> Edit:
    """Return the edit that gives a row of the debian stack another Horovod."""
    row = "stack: debian, variants: [cpu], horovod: "
    return f"{row}{old}}}", f"{row}{new}}}"


@dataclass(frozen=True)
class Break:
    """An edit of the matrix that breaks a rule, and what must be said of it."""

    rule: str
    edits: tuple[Edit, ...]
    found: str
    nearest: str


BREAKS = (
    Break(
        "tensorflow-cuda",
        ((CUDA_OF_2_1, 'horovod: 0.19.1\n    cuda: "10.0"'),),
        "tf-2.1-gpu-ubuntu: cuda 10.0 breaks the rule tensorflow-cuda, which requires 10.1:",
        "10.1",
    ),
    Break(
        "tensorflow-cudnn",
        ((ROW_2_0, f"{ROW_2_0} cudnn: 7.5.0.56,"),),
        "tf-2.0-gpu-ubuntu: cudnn 7.5.0.56 breaks the rule tensorflow-cudnn, which requires 7.6 or",
        "7.6.3.30",
    ),
    Break(
        "tensorflow-cudnn",
        ((ROW_2_0, f"{ROW_2_0} cudnn: 7.4.2.24,"),),
        "tf-2.0-gpu-ubuntu: cudnn 7.4.2.24 breaks the rule tensorflow-cudnn",
        "7.6.3.30",
    ),
    Break(
        "tensorflow-python",
        (PYTHON_3_8, (ROW_1_15, f"{ROW_1_15} python: 3.8.20,")),
        "python 3.8.20, python.wheel_tag cp38, breaks the rule tensorflow-python, which requires "
        "one of: cp36, cp37:",
        "3.6.15",
    ),
    Break(
        "tensorflow-glibc",
        (('glibc: "2.36"', 'glibc: "2.3"'),),
        "tf-1.10-cpu-debian, tf-1.11-cpu-debian, tf-1.12-cpu-debian and 3 more: os debian-12, "
        "os.glibc 2.3, breaks the rule tensorflow-glibc, which requires at least 2.5:",
        "ubuntu-16.04",
    ),
    Break(
        "horovod-tensorflow",
        (horovod_on_debian("0.19.5", "0.15.2"),),
        "tf-2.2-cpu-debian: horovod 0.15.2, tensorflow 2.2.0, breaks the rule horovod-tensorflow, "
        "which requires a version in >=1.1,<2:",
        "0.19.5",
    ),
    Break(
        "horovod-compiler",
        (horovod_on_debian("0.16.4", "0.18.1"),),
        "tf-1.14-cpu-debian: horovod 0.18.1, tensorflow.compiler 4.8.5, breaks the rule "
        "horovod-compiler, which requires a release of: none:",
        "0.16.4",
    ),
    Break(
        "cuda-cudnn",
        ((ROW_1_10, f"{ROW_1_10} cudnn: 7.5.0.56,"),),
        "tf-1.10-gpu-ubuntu: cudnn 7.5.0.56 breaks the rule cuda-cudnn, which requires one of: 7.4",
        "7.4.2.24",
    ),
    Break(
        "cuda-nccl",
        ((ROW_1_10, f"{ROW_1_10} nccl: 2.6.4,"),),
        "tf-1.10-gpu-ubuntu: nccl 2.6.4 breaks the rule cuda-nccl, which requires one of: 2.4.2",
        "2.4.8",
    ),
    Break(
        "cuda-os",
        ((ROW_1_10, "{tensorflow: 1.10.0, stack: ubuntu, variants: [cpu, gpu],"),),
        "tf-1.10-gpu-ubuntu: cuda 9.0, os ubuntu-18.04, breaks the rule cuda-os, which requires "
        "one of: ubuntu-16.04:",
        "none",
    ),
    Break(
        "cuda-driver",
        (('driver: "418.39"', 'driver: "410.48"'),),
        "cuda 10.1, cuda.driver 410.48, breaks the rule cuda-driver, which requires at least 418",
        "418.39",
    ),
    Break(
        "mpi-os",
        (("mpi: openmpi-4.1.4", "mpi: intelmpi-2018.3.222"),),
        "mpi intelmpi-2018.3.222, os debian-12, breaks the rule mpi-os, which requires one of: "
        "ubuntu-16.04:",
        "intelmpi-2021.8.0",
    ),
)
