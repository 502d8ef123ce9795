"""Simulate releases of many images on many runners, from measured times of steps.

Nothing is built. The division is imgbuild's own; --check holds the model against a real run.
"""

import argparse
import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from measure import ROOT, publish, table
from plot import Group, plot

from imgbuild.core.project import Project
from imgbuild.matrix.images import Image
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import Selection, select_images
from imgbuild.plan import division
from imgbuild.plan.division import Work, divide, estimate_works

PLOT = ROOT / "docs" / "farm.svg"
FAMILIES, RUNNERS = (1, 10, 100), (1, 4, 16, 64, 256)
MODES = ("cold", "wheels", "cache")

#: Seconds on two cores, nothing else running, and where each was measured.
STEPS = {
    "base image": (30, "`tf-2.12-gpu-debian`, 2026-11-23: [above](#cuda-of-the-package-index)"),
    "system": (12, "`tf-1.12-cpu-debian` and `tf-2.2-cpu-debian` from nothing, 2026-11-20"),
    "compilers": (14, "the same builds"),
    "TensorFlow": (division.TENSORFLOW, "the same builds: 23 to 30 s"),
    "CUDA of the index": (division.CUDA, "`tf-2.12-gpu-debian`: 103 s for all packages"),
    "Horovod, GPU": (division.HOROVOD_GPU, "`tf-2.12-gpu-debian`"),
    **{
        f"Horovod {version}": (seconds, "Horovod compiled by itself, 2026-11-20")
        for version, seconds in division.HOROVOD.items()
    },
    "Horovod, newer": (division.HOROVOD_NEWER, "assumed: as 0.20"),
    "kept wheel installed": (1, "`tf-2.2-cpu-debian`, 2026-11-25: 1.3 s"),
    "export": (division.EXPORT, "the builds from nothing"),
    "suites": (division.SUITES, "41 s for 1.12, 47 s for 2.2, 2026-11-25"),
    "suites, GPU": (division.SUITES_GPU, "`tf-2.12-gpu-debian`, `gpu_runs` skipped"),
    "BuildKit's cache, 100 MB of image": (8, "`tf-2.2-cpu-debian`: 203 MB, read in 16 s"),
}
#: Megabytes of an image in a registry, by kind: [the cost of a release](#the-cost-of-a-release).
MEGABYTES = {"gpu": 2734.8, "1": 220.1, "2": 203.2, "2.4": 385.5}
#: Of a security update with identical layers: the system's layer, and that of Debian's Python.
SYSTEM, PYTHON = 70.4, 20.1
#: BuildKit's cache with mode=max beside its image: `tf-2.2-cpu-debian`, 502 MB for 203 MB.
CACHE = 502 / 203.2
#: What every runner has to do for the first of its images.
SETUP = ("base image", "system", "compilers")


class Member(NamedTuple):
    """One image of a simulated family: its work for the division, and its steps in seconds."""

    work: Work
    steps: Mapping[str, float]


def second(step: str) -> float:
    return STEPS[step][0]


def megabytes(image: Image) -> float:
    """Return what the image takes in a registry that has none of its layers."""
    newer = image.python_minor != "3.6"
    return MEGABYTES["gpu" if image.variant == "gpu" else "2.4" if newer else image.minor[0]]


def gigabytes(images: Sequence[Image], families: int, *, identical: bool) -> float:
    """Return what a release uploads: all of each image, or the layers of a security update."""
    if not identical:
        return families * sum(map(megabytes, images)) / 1000
    python = any(image.python_minor == "3.11" for image in images)
    return (SYSTEM * len({image.os_name for image in images}) + PYTHON * python) / 1000


def steps(image: Image, work: Work, mode: str) -> dict[str, float]:
    """Return the seconds of each step; images that share a step have it under the same name."""
    gpu = ", GPU" if image.variant == "gpu" else ""
    setup = {
        f"{step} {image.os_name}": second(step) for step in SETUP[: 3 if mode == "cold" else 2]
    }
    own = {"suites": second(f"suites{gpu}"), "export": second("export")}
    shared = {}
    if mode == "cache":
        own["cache"] = megabytes(image) / 100 * second("BuildKit's cache, 100 MB of image")
        setup = {step: seconds for step, seconds in setup.items() if step.startswith(SETUP[0])}
    else:
        version = ".".join(image.keys.get("horovod", "").split(".")[:2])
        known = f"Horovod {version}" if f"Horovod {version}" in STEPS else "Horovod, newer"
        compiled = second(f"Horovod{gpu}" if gpu else known)
        if image.horovod:
            own["Horovod"] = compiled if mode == "cold" else second("kept wheel installed")
        packages = next((stage for stage in work.shared if stage != image.os_name), work.name)
        shared = {f"packages {packages}": second("CUDA of the index" if gpu else "TensorFlow")}
        own["TensorFlow"] = second("TensorFlow") if gpu else 0
    return setup | shared | {f"{step} {work.name}": seconds for step, seconds in own.items()}


def family(images: Sequence[Image], mode: str, count: int) -> list[Member]:
    """Return ``count`` families like this one; they share nothing but systems and compilers.

    The division knows what records of earlier builds would say, and nothing of the first one.
    """
    project = Project(ROOT)
    first = estimate_works(images, project, {})
    alone = {
        work.name: sum(seconds for step, seconds in one.items() if not step.startswith("base"))
        for image, work in zip(images, first, strict=True)
        for one in [steps(image, work, mode)]
    }
    works = first if mode == "cold" else estimate_works(images, project, alone)
    found = []
    for number in range(count):
        for image, work in zip(images, works, strict=True):
            shared = {
                stage if stage == image.os_name else f"{stage} {number}": seconds
                for stage, seconds in work.shared.items()
                if mode != "cache"  # it has every stage
            }
            own = Work(f"{work.name} {number}", work.seconds, shared)
            found.append(Member(own, steps(image, own, mode)))
    return found


def busy(members: Iterable[Member]) -> float:
    """Return the seconds of one runner, which does a step that images share once."""
    return sum(once(members).values())


def once(members: Iterable[Member]) -> dict[str, float]:
    """Return the steps of all members: a step that they share is there once."""
    return dict(item for member in members for item in member.steps.items())


def bound(members: Sequence[Member], runners: int) -> float:
    """Return the seconds that no division can beat: each runner prepares itself at least once."""
    every = once(members).items()
    work = sum(seconds for step, seconds in every if not step.startswith(SETUP))
    prepare = min(
        sum(seconds for step, seconds in member.steps.items() if step.startswith(SETUP))
        for member in members
    )
    return max(work / runners + prepare, *(busy([member]) for member in members))


def divided(members: Sequence[Member], runners: int) -> list[float]:
    by_name = {member.work.name: member for member in members}
    parts = divide([member.work for member in members], runners)
    return [busy(by_name[work.name] for work in part) for part in parts]


def equal_counts(members: Sequence[Member], runners: int) -> list[float]:
    ends = [len(members) * number // runners for number in range(runners + 1)]
    return [busy(members[start:end]) for start, end in pairwise(ends)]


def job_each(members: Sequence[Member], runners: int) -> list[float]:
    """Return how long each runner is busy with fresh jobs of one image, in their order."""
    ends = [0.0] * runners
    for member in members:
        heapq.heapreplace(ends, ends[0] + busy([member]))
    return ends


def simulate(
    images: Sequence[Image], families: Sequence[int], counts: Sequence[int] = RUNNERS
) -> list[dict[str, float]]:
    """Return a row for each number of images and runners, in minutes."""
    rows = []
    for count in families:
        members = {mode: family(images, mode, count) for mode in MODES}
        for runners in counts:
            cold = members["cold"]
            times = {mode: divided(members[mode], runners) for mode in MODES}
            times |= {"equal": equal_counts(cold, runners), "each": job_each(cold, runners)}
            row = {name: max(ends) / 60 for name, ends in times.items()}
            row |= {f"{name} sum": sum(ends) / 60 for name, ends in times.items()}
            row |= {"bound": bound(cold, runners) / 60}
            rows.append({"images": len(cold), "runners": runners, **row})
    return rows


def report(rows: Sequence[Mapping[str, float]], images: Sequence[Image]) -> str:
    """Return the tables: times, bytes, and the steps that they are made of."""
    head = (
        *("images", "runners", "divided, cold", "× bound", "equal counts", "a job an image"),
        *("divided, wheels kept", "divided, BuildKit's cache"),
        *("runner-minutes: divided, cold", "equal counts", "a job an image", "wheels kept"),
    )
    sums = [f"{name} sum" for name in ("cold", "equal", "each", "wheels")]
    columns = ("equal", "each", "wheels", "cache", *sums)
    cells = [
        (
            *(f"{row['images']:,}", f"{row['runners']}", f"{row['cold']:,.0f}"),
            f"{row['cold'] / row['bound']:.2f}",
            *(f"{row[name]:,.0f}" for name in columns),
        )
        for row in rows
    ]
    whole = [gigabytes(images, count, identical=False) for count in FAMILIES]
    changed = [gigabytes(images, count, identical=True) for count in FAMILIES]
    pushed = (
        ("every layer another", *(f"{size:,.0f}" for size in whole)),
        ("identical layers, a security update", *(f"{size:.2f}" for size in changed)),
        ("identical layers, nothing changed", *("0" for _ in FAMILIES)),
        ("BuildKit's cache of all, once", *(f"{size * CACHE:,.0f}" for size in whole)),
    )
    counts = [f"GB of {len(images) * count:,} images" for count in FAMILIES]
    measured = [(step, f"{seconds:g}", source) for step, (seconds, source) in STEPS.items()]
    tables = (
        (head, cells),
        (("pushed", *counts), pushed),
        (("step", "seconds", "measured"), measured),
    )
    return "\n".join(table(*one) for one in tables)


def drawing(rows: Sequence[Mapping[str, float]]) -> str:
    lines = {"each": "a job an image", "cold": "divided, cold", "wheels": "divided, wheels kept"}
    lines |= {"bound": "lower bound, cold"}
    groups = []
    for count in dict.fromkeys(row["images"] for row in rows):
        own = [row for row in rows if row["images"] == count]
        values = {text: [row[name] for row in own] for name, text in lines.items()}
        groups.append(Group(f"{count:,} images", values))
    title = "Minutes until all images are built and tested, by the number of runners"
    return plot(title, ("runners", "minutes"), RUNNERS, groups)


def check(path: Path, images: Sequence[Image]) -> str:
    """Return a real run beside the model; benchmarks/README.md describes the file.

    The scale is that of all builders together: a machine is faster or slower than another, and what
    the model has to get right is how they compare.
    """
    real = json.loads(path.read_text(encoding="utf-8"))
    members = {m.work.name.split()[0]: m for m in family(images, real["mode"], 1)}
    model = [busy(members[name] for name in run["names"]) for run in real["runs"]]
    measured = [run["seconds"] for run in real["runs"]]
    scale = sum(measured) / sum(model)
    rows = [
        (str(len(run["names"])), f"{own:.0f}", f"{guess * scale:.0f}", f"{guess * scale / own:.2f}")
        for run, own, guess in zip(real["runs"], measured, model, strict=True)
    ]
    head = ("images of a builder", "seconds", f"model × {scale:.2f}", "model : real")
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write tables and plot into docs")
    parser.add_argument("--check", type=Path, metavar="FILE", help="a real run, as JSON")
    chosen = parser.parse_args()
    project = Project(ROOT)
    images = select_images(load_matrix(project.matrix), Selection(everything=True))
    if chosen.check:
        publish("farm-check", check(chosen.check, images), write=chosen.write, timed=False)
        return
    rows = simulate(images, FAMILIES)
    publish("farm", report(rows, images), write=chosen.write, timed=False)
    if chosen.write:
        PLOT.write_text(drawing(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
