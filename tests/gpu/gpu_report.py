"""The report of a run on GPUs: the machine, and what each suite found in each image.

`python gpu_report.py FOLDER` adds the machine to what `imgbuild test --report FOLDER` wrote: it
writes `gpu.json` and `gpu.md`. `chroot_run.py` writes the same of a run without an engine. It is
Python of 3.10 without packages, for a bare machine.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SUITES = ("gpu_built", "gpu_loadable", "gpu_runs")
#: The longest text of a failure in the table for people; the JSON has all of it.
SHOWN = 2000


def machine(driver: dict[str, Any], way: str) -> dict[str, str]:
    """Return what tells this machine from others; `driver` is what programs/driver.py printed."""
    gpus = [f"{one['name']} (capability {one['capability']})" for one in driver["devices"]]
    cuda = driver["cuda"]
    cpus = re.findall(r"^model name\s*: (.*)", read("/proc/cpuinfo"), re.MULTILINE)
    kilobytes = re.search(r"MemTotal: +(\d+)", read("/proc/meminfo"))
    return {
        "GPUs": ", ".join(gpus) or f"none: {driver['error'] or 'the driver has no device'}",
        "driver": driver["kernel"] or "not known",
        "CUDA of the driver": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "not known",
        "CPU": f"{os.cpu_count()} x {cpus[0] if cpus else platform.machine()}",
        "memory": f"{int(kilobytes[1]) / 1e6:.0f} GB" if kilobytes else "not known",
        "kernel": f"{platform.system()} {platform.release()}",
        "containers": way,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def read(file: str) -> str:
    """Return the text of a file of the kernel, nothing where it is not there."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError:
        return ""


def asked(programs: Path) -> dict[str, Any]:
    """Return what the driver of this machine says to programs/driver.py."""
    command = [sys.executable, str(programs / "driver.py")]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, text=True))
    return found


def suite_result(suite: str, checks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a suite as `imgbuild test` has it; one without any check has failed."""
    failures, skips = (
        [one for one in checks if one["outcome"] == outcome] for outcome in ("failed", "skipped")
    )
    passed = len(checks) - len(failures) - len(skips)
    verdict = "incomplete" if passed and skips else "passed" if passed else "skipped"
    return {
        "suite": suite,
        "verdict": "failed" if failures or not checks else verdict,
        "passed": passed,
        "failed": len(failures),
        "seconds": round(sum(one["seconds"] for one in checks), 1),
        "failures": [{"test": check_name(one), "message": one["message"]} for one in failures],
        "skipped": [{"test": check_name(one), "reason": one["message"]} for one in skips],
    }


def check_name(check: dict[str, Any]) -> str:
    """Return a check's name without testinfra's parameter, which stands between its own."""
    name, _, values = check["test"].rstrip("]").partition("[")
    own = [value for value in values.split("-") if value and "://" not in value]
    return f"{name}[{'-'.join(own)}]" if own else str(name)


def write(folder: Path, this: dict[str, str], reports: list[dict[str, Any]]) -> Path:
    """Write both files, and return the one for people."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"machine": this, "reports": reports}
    (folder / "gpu.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (folder / "gpu.md").write_text(markdown(this, reports), encoding="utf-8")
    return folder / "gpu.md"


def markdown(this: dict[str, str], reports: list[dict[str, Any]]) -> str:
    """Return the machine, a row a suite, and then what failed or was skipped."""
    rows = [["image", "suite", "verdict", "passed", "failed", "skipped", "seconds"]]
    rows += [["---"] * len(rows[0])]
    notes = []
    for report in reports:
        for one in report["suites"]:
            counts = (one["passed"], one["failed"], len(one["skipped"]), one["seconds"])
            rows.append([f"`{report['image']}`", one["suite"], one["verdict"], *map(str, counts)])
            messages: dict[str, list[str]] = {}  # many checks may fail by one command
            for bad in one["failures"]:
                messages.setdefault(bad["message"], []).append(f"`{bad['test']}`")
            where = f"`{report['image']}` {one['suite']}"
            notes += [
                f"{where}: {', '.join(tests)}\n\n````\n{message[-SHOWN:]}\n````\n"
                for message, tests in messages.items()
            ]
            reasons = dict.fromkeys(skip["reason"] for skip in one["skipped"])
            notes += [f"- {where} skipped: {reason}" for reason in reasons]
    known = [["machine", ""], ["---", "---"], *map(list, this.items())]
    tables = ("\n".join(f"| {' | '.join(row)} |" for row in table) for table in (known, rows))
    return "\n\n".join((*tables, "\n".join(notes))).rstrip() + "\n"


def faults(reports: list[dict[str, Any]]) -> list[str]:
    """Return why the run proves nothing of GPUs: a suite failed, or none computed on one."""
    suites = [(report["image"], one) for report in reports for one in report["suites"]]
    bad = [f"{image}: {one['suite']} failed" for image, one in suites if one["verdict"] == "failed"]
    idle = [
        f"{image}: nothing ran on a GPU"
        for image, one in suites
        if one["suite"] == SUITES[-1] and not one["passed"]
    ]
    return [*bad, *idle]


def main(folder: Path) -> None:
    """Add the machine to the reports of `imgbuild test`, which has judged them."""
    reports = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    programs = Path(__file__).resolve().parents[1] / "image" / "programs"
    print(write(folder, machine(asked(programs), "an engine"), reports))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
