"""How much processor time imgbuild's quick commands take, beside an empty Python in the same run.

    python benchmarks/command_speed.py [RUNS]

Each command runs RUNS times (default 11) in turn with the baseline, so that a machine whose speed
drifts slows both; the table gives medians of user + system seconds, and the ratio to the baseline.
The engine is asked by `build --tf 2.2` only; that row needs the image to be up to date.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

IMGBUILD = str(Path(sys.executable).with_name("imgbuild"))
BASELINE = [sys.executable, "-c", "pass"]
COMMANDS = {
    "imgbuild --help": [IMGBUILD, "--help"],
    "imgbuild list": [IMGBUILD, "list"],
    "imgbuild render --check": [IMGBUILD, "render", "--check"],
    "imgbuild lock --check": [IMGBUILD, "lock", "--check"],
    "imgbuild build --tf 2.2 (nothing to do)": [IMGBUILD, "build", "--tf", "2.2"],
}


def measure(command: list[str]) -> tuple[float, float]:
    """Return the processor and the wall seconds of one run; both 0 if it failed."""
    before, started = _children_seconds(), time.monotonic()
    code = subprocess.run(command, capture_output=True, check=False).returncode
    used, wall = _children_seconds() - before, time.monotonic() - started
    return (0.0, 0.0) if code else (used, wall)


def _children_seconds() -> float:
    """Return the user and system seconds of all processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def row(name: str, command: list[str], runs: int) -> str:
    """Return one line of the table."""
    measure(command)
    pairs = [(measure(command), measure(BASELINE)[0]) for _ in range(runs)]
    if not all(ours for (ours, _), _ in pairs):
        return f"| {name} | failed | | |"
    cpu = statistics.median(ours for (ours, _), _ in pairs)
    wall = statistics.median(wall for (_, wall), _ in pairs)
    ratio = statistics.median(ours / baseline for (ours, _), baseline in pairs)
    return f"| {name} | {cpu:.2f} | {wall:.2f} | {ratio:.1f} |"


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    print("| command | cpu s | wall s | cpu, × empty Python |")
    print("|---|---|---|---|")
    for name, command in COMMANDS.items():
        print(row(name, command, runs), flush=True)


if __name__ == "__main__":
    main()
