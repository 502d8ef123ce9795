"""The results file of one benchmark: what ran, on what, every sample, and which goals it met."""

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.samples import Samples

#: Where results go unless told otherwise; git ignores it.
RESULTS = Path(__file__).resolve().parent / "results"
ROOT = Path(__file__).resolve().parents[1]
#: Options that say where, on this machine; each has a value.
HERE_ONLY = frozenset({"--work", "--json", "--engine", "--engine-pid"})


@dataclass(frozen=True)
class Goal:
    """A figure that was aimed at. ``measured`` is ``None`` if it could not be measured."""

    text: str
    limit: float
    measured: float | None
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; ``None`` if nothing was measured."""
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def aim(self) -> str:
        """What was aimed at, such as ``≤ 0.5 s``."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Section:
    """One table of a benchmark, as it is printed and as it goes into docs/evidence.md."""

    title: str
    table: str
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """Everything one benchmark found out."""

    name: str
    sections: Sequence[Section]
    goals: Sequence[Goal] = ()
    samples: Sequence[Samples] = ()
    facts: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether no contestant failed."""
        return all(one.ok for one in self.samples)


def write(result: Result, path: Path, versions: Mapping[str, str]) -> None:
    """Write the results file."""
    document = {
        "benchmark": result.name,
        "command": command_line(result.name, sys.argv[1:]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": revision(),
        "machine": machine(),
        "versions": dict(versions),
        "ok": result.ok,
        "goals": [{**asdict(goal), "aim": goal.aim, "met": goal.met} for goal in result.goals],
        "sections": [asdict(section) for section in result.sections],
        "samples": [one.as_json() for one in result.samples],
        "facts": dict(result.facts or {}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def command_line(name: str, words: Sequence[str]) -> str:
    """Return the command that anyone may repeat: without this machine's paths and addresses."""
    kept = [f"benchmarks.{name}"]
    skipping = False
    for word in words:
        if not skipping and word.partition("=")[0] not in HERE_ONLY:
            kept.append(word)
        skipping = word in HERE_ONLY
    return shlex.join(["python", "-m", *kept])


def read_all(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the results files of a folder by the name of the benchmark."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def machine() -> dict[str, Any]:
    """Return what this machine is, without its name and without any path."""
    return {
        "processors": len(os.sched_getaffinity(0)),
        "model": _field("/proc/cpuinfo", "model name"),
        "memory_mb": int(_field("/proc/meminfo", "MemTotal").split()[0]) // 1000,
        "kernel": platform.release().split("-")[0],
        "system": _field("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "load": round(os.getloadavg()[0], 2),
    }


def revision() -> str:
    """Return the commit that was measured, with ``+`` where files differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _field(path: str, key: str, separator: str = ":") -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, found, value = line.partition(separator)
        if found and name.strip() == key:
            return value.strip()
    return "0"
