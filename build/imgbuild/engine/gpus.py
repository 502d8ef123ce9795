"""List the GPUs of this machine, by nvidia-smi."""

import re

from imgbuild.core.process import find_program, run
from imgbuild.matrix.gpus import Gpu

#: It takes a second or two where the driver is not kept loaded; a broken GPU lets it hang.
SECONDS = 10.0
#: On PATH, or where WSL has the driver of Windows.
_PROGRAMS = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
_NUMBER = re.compile(r"\d+(\.\d+)+")


def find_gpus() -> tuple[list[Gpu], str]:
    """Return the GPUs, or why none can be listed; neither if there is no nvidia-smi.

    A GPU in parts (MIG) is listed once: its parts have its capability.
    """
    program = next(filter(None, map(find_program, _PROGRAMS)), None)
    if program is None:
        return [], ""
    query = "--query-gpu=name,driver_version"
    command = [program, f"{query},compute_cap", "--format=csv,noheader"]
    answer = run(command, timeout=SECONDS)
    if "not a valid field" in answer.output:  # an old one does not know compute_cap
        answer = run([program, query, command[-1]], timeout=SECONDS)
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.output.splitlines()]
    if not answer.ok or min(map(len, rows), default=0) < 2:
        return [], answer.last(1)
    gpus = []
    for name, *cells in rows:
        # It has words such as [N/A] for what it cannot tell.
        numbers = [cell if _NUMBER.fullmatch(cell) else None for cell in cells]
        gpus.append(Gpu(name, *numbers[:2]))
    return gpus, ""
