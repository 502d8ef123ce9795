"""How time and memory of imgbuild itself grow with 10, 30, 100 and 300 images.

The projects are generated (generated_project.py). Rendering writes every Dockerfile anew; planning
is ``imgbuild build --all --plan`` against the engine that imgbuild uses here, which has none of the
images. Memory is the largest resident set of imgbuild's process tree, without Docker's programs,
looked at every 5 ms (memory.py).
"""

import shutil
from pathlib import Path

from benchmarks import checkout
from benchmarks.command import Setting, main
from benchmarks.generated_project import generated_project
from benchmarks.image_sizes import usual_engine
from benchmarks.process import run
from benchmarks.results import Goal, Result, Section
from benchmarks.rounds import Contestant, WrongResultError, compare
from benchmarks.samples import Samples, find
from benchmarks.table import megabytes, seconds, table

COUNTS = (10, 30, 100, 300)
LOOK_SECONDS = 0.005


def measure(setting: Setting) -> Result:
    """Return time and memory by the number of images."""
    cache = setting.work / "cache"
    checkout.seed_cache(cache)
    env = checkout.environment(setting.work, usual_engine().host, cache=cache)
    contestants = []
    for count in COUNTS:
        root = generated_project(setting.work / str(count), count).root
        contestants += _contestants(root, count, env, setting.work)
    # Once with the inputs made, so that a plan finds them.
    samples = compare(contestants, setting.rounds, setting.work, say=setting.say)
    return _result(samples)


def _contestants(root: Path, count: int, env: dict[str, str], work: Path) -> list[Contestant]:
    project = ["--project", str(root)]
    render = [*checkout.imgbuild(), "render", *project]
    plan = [*checkout.imgbuild(), "build", *project, "--all", "--plan"]
    files = root / "images" / "dockerfiles"

    def remove(_: int) -> None:
        shutil.rmtree(files, ignore_errors=True)

    def rendered(_: int) -> None:
        if len(list(files.glob("*/Dockerfile"))) < count:
            raise WrongResultError(f"fewer than {count} Dockerfiles")

    def make(_: int) -> None:
        if not files.is_dir():
            run(render, work / "make.log", env=env)

    def planned(number: int) -> None:
        text = (work / f"plan-{count}-{number}.log").read_text(encoding="utf-8")
        if f"of {count}" not in text:
            raise WrongResultError(f"no plan of {count} images: {text[-300:]}")

    return [
        Contestant(
            f"render {count}", render, env, prepare=remove, check=rendered, watch=LOOK_SECONDS
        ),
        Contestant(f"plan {count}", plan, env, prepare=make, check=planned, watch=LOOK_SECONDS),
    ]


def _result(samples: list[Samples]) -> Result:
    rows = [
        [
            str(count),
            *(
                cell
                for what in ("render", "plan")
                for cell in _cells(find(samples, f"{what} {count}"))
            ),
        ]
        for count in COUNTS
    ]
    head = ["images", "render s", "peak MB", "plan s", "peak MB"]
    last = find(samples, f"plan {COUNTS[-1]}")
    peak = last.median("peak")
    return Result(
        "growth",
        [Section("Time and memory by the number of images", table(head, rows))],
        [
            Goal(f"planning {COUNTS[-1]} images", 2, last.median(), "s"),
            Goal(f"planning {COUNTS[-1]} images, peak memory", 200, peak and peak / 1e6, "MB"),
        ],
        samples,
    )


def _cells(one: Samples) -> list[str]:
    return [seconds(one.median()) if one.ok else "failed", megabytes(one.median("peak"))]


if __name__ == "__main__":
    main("growth", __doc__, measure, rounds=(5, 3))
