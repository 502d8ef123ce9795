"""Rendering the whole matrix, beside HPCCM and beside a plain Jinja2 loop; whole processes.

imgbuild reads and checks the matrix, resolves every image and writes every Dockerfile. The plain
loop renders the same templates to the same files from values that lie ready: the floor. HPCCM
makes as many recipes of like size in one process, which is kinder to it than one process a recipe,
the way its command line works.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import checkout
from benchmarks.command import MissingError, Setting, main
from benchmarks.results import Goal, Result, Section
from benchmarks.rounds import Contestant, WrongResultError, compare
from benchmarks.samples import Samples, ratio
from benchmarks.table import times, timing_table
from benchmarks.template_values import write_values
from imgbuild.matrix.images import documented_family
from imgbuild.project import Project

HPCCM = "hpccm==26.5.0"
HERE = Path(__file__).resolve().parent


def measure(setting: Setting) -> Result:
    """Return the times of the three."""
    project = checkout.copy_checkout(setting.work / "checkout")
    listed = checkout.images(project=project)
    listed = (*listed, *documented_family(listed[0].matrix))
    values = setting.work / "values.json"
    write_values(listed, project.locks, values)
    expected = {path.parent.name: path.read_bytes() for path in project.dockerfiles.glob("*/*")}
    render = [*checkout.imgbuild(), "render", "--project", str(project.root)]
    plain = setting.work / "plain"
    recipes = setting.work / "recipes"
    loop = [sys.executable, str(HERE / "plain_render.py"), str(values), str(project.templates)]
    hpccm = [str(_hpccm(setting.work)), str(HERE / "hpccm_render.py"), str(values), str(recipes)]
    contestants = [
        _contestant("imgbuild render", render, project.dockerfiles, expected),
        _contestant("plain Jinja2 loop", [*loop, str(plain)], plain, expected),
        _contestant("HPCCM", hpccm, recipes, {}),
    ]
    samples = compare(contestants, setting.rounds, setting.work, say=setting.say)
    return _result(samples, project, recipes, len(expected))


def _contestant(name: str, command: list[str], out: Path, expected: dict[str, bytes]) -> Contestant:
    """Every run starts without any file, and must write the committed ones."""

    def prepare(_: int) -> None:
        shutil.rmtree(out, ignore_errors=True)

    def check(_: int) -> None:
        found = {path.parent.name: path.read_bytes() for path in out.glob("*/Dockerfile")}
        if not found or (expected and found != expected):
            raise WrongResultError(f"wrote {len(found)} files, which are not the committed ones")

    return Contestant(name, command, prepare=prepare, check=check)


def _hpccm(work: Path) -> Path:
    """Install HPCCM into an environment of its own and return its interpreter."""
    uv = [str(Path(sys.executable).with_name("uv"))]
    python = work / "hpccm" / "bin" / "python"
    install = ["pip", "install", "--quiet", "--python", str(python), HPCCM]
    for command in (["venv", "--quiet", "--python", sys.executable, str(work / "hpccm")], install):
        done = subprocess.run([*uv, *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingError(f"{HPCCM} cannot be installed: {done.stderr[-400:]}")
    return python


def _result(samples: list[Samples], project: Project, recipes: Path, count: int) -> Result:
    ours, loop, hpccm = samples
    sizes = [_mean_size(folder) for folder in (project.dockerfiles, recipes)]
    note = (
        f"{count} files a run. A file has {sizes[0]:.0f} bytes, a recipe of HPCCM {sizes[1]:.0f}; "
        "the loop's files are equal to imgbuild's, byte for byte. imgbuild took "
        f"{times(ratio(ours, hpccm))} × HPCCM's time."
    )
    return Result(
        "render_matrix",
        [Section("Rendering the whole matrix", timing_table(samples, loop), [note])],
        [
            Goal("render the matrix, whole process", 0.5, ours.median(), "s"),
            Goal("render the matrix", 3, ratio(ours, loop), "× the plain loop"),
        ],
        samples,
        {"files": count, "bytes": sizes},
    )


def _mean_size(folder: Path) -> float:
    sizes = [path.stat().st_size for path in folder.glob("*/Dockerfile")]
    return sum(sizes) / max(len(sizes), 1)


if __name__ == "__main__":
    main("render_matrix", __doc__, measure, rounds=(9, 5))
