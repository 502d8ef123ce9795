"""What earlier builds took, kept on this machine: a small JSON file that may vanish at any time.

A file that is missing, damaged or not readable is as good as none, and one that cannot be written
is left alone: nothing but an estimate depends on it.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.engine.step_text import stage_of
from imgbuild.errors import MachineError
from imgbuild.files import write_text

#: How many runs of each are kept: the median of five shrugs off two odd ones.
RUNS = 5
#: How many steps and suites are kept, those used last: some hundred kilobytes.
ENTRIES = 4000
_VERSION = 1


@dataclass(frozen=True)
class Learnt:
    """The work of earlier runs by key, in the unit of `imgbuild.engine.workload`."""

    runs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    _like: dict[str, float | None] = field(default_factory=dict, compare=False)

    def expected(self, *keys: str) -> float | None:
        """Return the median of the first key that is known."""
        known = (self.runs[key] for key in keys if self.runs.get(key))
        return next((statistics.median(runs) for runs in known), None)

    def like(self, prefix: str) -> float | None:
        """Return the median of all whose key begins so."""
        if prefix not in self._like:
            found = [statistics.median(v) for k, v in self.runs.items() if k.startswith(prefix)]
            self._like[prefix] = statistics.median(found) if found else None
        return self._like[prefix]


def step_kind(step: str) -> str:
    """Return what steps are alike by: stage and instruction, ``step:horovod RUN:``."""
    word = step.rpartition("] ")[2].split(" ", 1)[0] if stage_of(step) else step[:40]
    return f"step:{stage_of(step)} {word}:"


def step_key(step: str, image: str = "") -> str:
    """Return the key of a step, for all images or, if it is only its own, for one."""
    digest = hashlib.sha256(step.encode()).hexdigest()[:12]
    return f"{step_kind(step)}{digest}{':' if image else ''}{image}"


def load_learnt(path: Path) -> Learnt:
    """Return what the file knows; nothing, if it cannot be read."""
    return Learnt(_read(path))


def save_learnt(path: Path, new: Mapping[str, float]) -> None:
    """Add the work of one run. Several builds may do so at once."""
    if not new:
        return
    with contextlib.suppress(OSError, MachineError), _alone(path):
        runs = dict(_read(path))
        for key, work in new.items():
            runs[key] = (*runs.pop(key, ()), round(work, 2))[-RUNS:]
        kept = dict([*runs.items()][-ENTRIES:])
        write_text(path, json.dumps({"version": _VERSION, "runs": kept}))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other builds from reading what is about to be replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> dict[str, tuple[float, ...]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["version"] != _VERSION:
            return {}
        read = {str(key): tuple(map(float, runs)) for key, runs in found["runs"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return {key: runs for key, runs in read.items() if runs and all(map(_sane, runs))}


def _sane(work: float) -> bool:
    return math.isfinite(work) and work >= 0
