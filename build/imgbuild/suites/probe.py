"""Probe an external image for its TensorFlow, MPI and CUDA: how to use it, not what is right."""

import json
from dataclasses import dataclass
from typing import Any

from imgbuild.errors import InputError
from imgbuild.process import TIMED_OUT
from imgbuild.suites.container import run_docker

SECONDS = 120
#: How the flavours' ``mpirun --version`` begins or ends.
_FLAVOURS = {"openmpi": "Open MPI", "intelmpi": "Intel(R) MPI", "mpich": "HYDRA"}

# Metadata is read by hand: importing TensorFlow takes seconds, and Python 3.6 has nothing for it.
_PYTHON = r"""
import glob, json, os, re, sys
names = [os.path.basename(path) for folder in sys.path
         for path in glob.glob(os.path.join(folder or ".", "tensorflow*-info"))]
found = [re.match(r"tensorflow(_cpu|_gpu)?-(\d+(\.\d+)+)[^-]*\.(dist|egg)-info$", n) for n in names]
print(json.dumps([match.group(2) for match in found if match]))
"""
_SCRIPT = r"""
p=$(command -v python || command -v python3) && "$p" -c "$1" || echo '[]'
mpirun --version 2>&1 | head -n 20 | tr '\n' ' '; echo
command -v horovodrun || echo
ls /usr/local/cuda*/lib64/libcudart.so* /usr/local/cuda*/targets/*/lib/libcudart.so* \
  /usr/lib/x86_64-linux-gnu/libcudart.so* 2>/dev/null | head -n 1
"""


@dataclass(frozen=True)
class ProbedImage:
    """What was found in the image; ``None`` or false where there is nothing."""

    tensorflow: str | None = None
    mpi_flavour: str | None = None
    horovodrun: bool = False
    cuda: bool = False


def probe_image(image_id: str, host: str | None) -> ProbedImage:
    """Return the contents of the image, from a container that ends at once.

    Raises:
        InputError: no command runs in it; the engine's message is given.

    """
    command = [
        *("run", "--rm", "--network=none", "--env=NVIDIA_VISIBLE_DEVICES=void"),
        *("--entrypoint=/bin/sh", image_id, "-c", _SCRIPT, "sh", _PYTHON),
    ]
    ran = run_docker(command, host, SECONDS)
    if ran.code == TIMED_OUT:
        raise InputError(f"{image_id} did not answer within {SECONDS} s.")
    lines = ran.output.splitlines()
    if len(lines) < len(("tensorflow", "mpirun", "horovodrun")):
        raise InputError(f"No command runs in {image_id}: {ran.errors.strip()}")
    return read_probe(lines)


def read_probe(lines: list[str]) -> ProbedImage:
    """Return what the script printed, a line a question."""
    versions: Any = json.loads(lines[0])
    flavours = [flavour for flavour, words in _FLAVOURS.items() if words in lines[1]]
    return ProbedImage(
        versions[0] if versions else None,
        flavours[0] if flavours else None,
        bool(lines[2].strip()),
        any("libcudart" in line for line in lines[3:]),
    )
