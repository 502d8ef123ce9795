"""List the GPUs of this machine with nvidia-smi."""

import re

from imgbuild.core.process import find_program, run
from imgbuild.matrix.gpus import Gpu

#: Time limit of nvidia-smi, in seconds. It takes a second or two if the driver is not kept loaded,
#: and can hang if a GPU is broken.
SECONDS = 10.0
#: On PATH, or in WSL's folder for the Windows driver.
_PROGRAMS = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
_NUMBER = re.compile(r"\d+(\.\d+)+")


def find_gpus() -> tuple[list[Gpu], str]:
    """Return the GPUs, and why none can be listed; both are empty if there is no nvidia-smi.

    A GPU that is split into parts (MIG) is listed once, because its parts have the same compute
    capability.
    """
    program = next(filter(None, map(find_program, _PROGRAMS)), None)
    if program is None:
        return [], ""
    query = "--query-gpu=name,driver_version"
    command = [program, f"{query},compute_cap", "--format=csv,noheader"]
    answer = run(command, timeout=SECONDS)
    if "not a valid field" in answer.output:  # old versions lack compute_cap
        answer = run([program, query, command[-1]], timeout=SECONDS)
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.output.splitlines()]
    if not answer.ok or min(map(len, rows), default=0) < 2:
        return [], answer.last(1)
    gpus = []
    for name, *cells in rows:
        # nvidia-smi prints, for example, [N/A] for an unknown value.
        numbers = [cell if _NUMBER.fullmatch(cell) else None for cell in cells]
        gpus.append(Gpu(name, *numbers[:2]))
    return gpus, ""
