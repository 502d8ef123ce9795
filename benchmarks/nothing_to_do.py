"""Nothing to do, the whole matrix: imgbuild, docker build one after another and 20 at once, bake.

Most images of the matrix need upstreams that not every machine reaches. What is measured does not
depend on what is in an image, so the engine is given images that cost nothing to make: for imgbuild
one with the right labels and names for every row; for the others every row's Dockerfile with its
real stages, mounts, copies, arguments, labels and contexts, whose commands only make empty folders.
All of these are built before the clock runs, so every measured step comes from the cache.
"""

import json
import re
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import checkout, dockerfiles
from benchmarks import engine as engines
from benchmarks.command import Setting, main
from benchmarks.engine import Engine
from benchmarks.process import run
from benchmarks.results import Goal, Result, Section
from benchmarks.rounds import Contestant, WrongResultError, compare
from benchmarks.samples import Samples, find, ratio
from benchmarks.table import times, timing_table
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.matrix.images import Image
from imgbuild.plan.ownership import CREATED
from imgbuild.project import Project

AT_ONCE = 20
#: What the copies of a Dockerfile name; the emptied commands make all of them.
FOLDERS = (
    "/opt/python/bin /opt/miniconda /out/opt/python/lib/python3.6/site-packages /build /wheels"
)
OURS, SERIAL, PARALLEL, BAKE = (
    "imgbuild build --all",
    "docker build, one after another",
    f"docker build, {AT_ONCE} at once",
    "docker buildx bake",
)


def measure(setting: Setting) -> Result:
    """Return the times of the four, with everything built before."""
    project = checkout.copy_checkout(setting.work / "checkout")
    images = checkout.images(project=project)
    cache = setting.work / "cache"
    checkout.seed_cache(cache)
    with engines.measuring_engine(setting.work, setting.options) as engine:
        engine.cold()
        env = checkout.environment(setting.work, engine.host, cache=cache)
        # One image of the stack that any machine can build brings a base image and uv's folder.
        sample = checkout.images(checkout.debian_family()[:1], project)
        (target,) = dockerfiles.supplied(sample, project, env).values()
        commands = Commands(engine, project, images, setting.work, target.contexts)
        setting.say("making the images that are then up to date")
        commands.prepare_ours(env)
        commands.prepare_theirs()
        commands.remember()
        samples = compare(
            [
                Contestant(OURS, commands.ours(), env, check=commands.check, watch=0.005),
                *(
                    Contestant(name, command, env, check=commands.check)
                    for name, command in commands.theirs().items()
                ),
            ],
            setting.rounds,
            setting.work,
            engine_pid=engine.pid,
            say=setting.say,
        )
    return _result(samples, len(images))


class Commands:
    """The four commands, and what makes their images beforehand."""

    def __init__(  # where, what, and with what
        self,
        engine: Engine,
        project: Project,
        images: Sequence[Image],
        work: Path,
        contexts: Mapping[str, str],
    ) -> None:
        self._given = contexts
        self._engine = engine
        self._project = project
        self._images = images
        self._work = work
        self._context = project.root / "images"
        self._empty = work / "emptied"
        self._stored: set[str] = set()

    def ours(self) -> list[str]:
        """Return imgbuild's command."""
        chosen = ["--project", str(self._project.root), "--all", "--no-test"]
        return [*checkout.imgbuild(), "build", *chosen]

    def remember(self) -> None:
        """Note which images the engine has."""
        self._stored = self._images_now()

    def check(self, _: int) -> None:
        """See that the engine has the same images: a build is no time to report here."""
        if self._images_now() != self._stored:
            raise WrongResultError("it made or removed images; something was not cached")

    def _images_now(self) -> set[str]:
        return {*self._engine.ask("image", "ls", "--all", "--quiet", "--no-trunc").split()}

    def prepare_ours(self, env: dict[str, str]) -> None:
        """Give the engine an empty image for every row, with the labels of one that is current."""
        log = self._work / "plan.json"
        done = run([*self.ours(), "--plan", "--json"], log, env=env)
        if done.code:
            raise WrongResultError(f"imgbuild build --plan: {done.said}")
        text = log.read_text(encoding="utf-8")
        digests = {i["image"]: i["input_digest"] for i in json.loads(text[text.index("[\n") :])}
        folder = self._work / "empty"
        folder.mkdir()
        (folder / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n", encoding="utf-8")
        for image in self._images:
            labels = {NAME: image.name, INPUT_DIGEST: digests[image.name]}
            labels[REPOSITORY] = image.repository
            labels[CREATED] = image.matrix.epoch
            words = [w for k, v in labels.items() for w in ("--label", f"{k}={v}")]
            words += ["--build-arg", f"SOURCE_DATE_EPOCH={epoch_seconds(image)}"]
            words += [word for tag in image.tags for word in ("--tag", tag)]
            self._engine.ask_buildx("build", "--builder=default", *words, str(folder))

    def prepare_theirs(self) -> None:
        """Build everything that is then cached."""
        for image in self._images:
            folder = self._empty / image.name
            folder.mkdir(parents=True)
            text = (self._project.dockerfiles / image.name / "Dockerfile").read_text("utf-8")
            (folder / "Dockerfile").write_text(emptied(text), encoding="utf-8")
        self._engine.ask_buildx(*self._bake()[1:])
        for image in self._images:
            self._engine.ask_buildx(*self._build(image)[1:])

    def theirs(self) -> dict[str, list[str]]:
        """Return the other commands by name."""
        serial = self._work / "serial.sh"
        together = self._work / "together.txt"
        lines = [" ".join(self._build(image)) for image in self._images]
        serial.write_text("\n".join(["set -e", *lines]) + "\n", encoding="utf-8")
        together.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return {
            SERIAL: ["sh", str(serial)],
            PARALLEL: ["xargs", f"-P{AT_ONCE}", "-a", str(together), "-I{}", "sh", "-c", "{}"],
            BAKE: self._bake(),
        }

    def _build(self, image: Image) -> list[str]:
        words = ["--builder=default", "--tag", f"benchmark/one:{image.name}"]
        for name, where in self._contexts().items():
            words += ["--build-context", f"{name}={where}"]
        words += ["--file", str(self._empty / image.name / "Dockerfile"), str(self._context)]
        return [self._engine.buildx, "build", *words]

    def _bake(self) -> list[str]:
        targets = {
            image.name.replace(".", "_"): {
                "context": str(self._context),
                "dockerfile": str(self._empty / image.name / "Dockerfile"),
                "contexts": self._contexts(),
                "tags": [f"benchmark/bake:{image.name}"],
                "output": ["type=docker"],
            }
            for image in self._images
        }
        path = self._work / "bake.json"
        group = {"default": {"targets": sorted(targets)}}
        path.write_text(json.dumps({"group": group, "target": targets}), encoding="utf-8")
        return [self._engine.buildx, "bake", "--builder=default", "--file", str(path)]

    def _contexts(self) -> dict[str, str]:
        """Return the contexts that every Dockerfile names; the folders hold what is mounted."""
        folder = self._work / "context"
        if not folder.is_dir():
            folder.mkdir()
            sources = self._project.dockerfiles.glob("*/Dockerfile")
            texts = [path.read_text("utf-8") for path in sources]
            files = {n for t in texts for n in re.findall(r"from=downloads,source=([^,]*)", t)}
            for name in files:
                (folder / name).write_text(f"{name}\n", encoding="utf-8")
        base = self._given["base"]
        return {"base": base, "uv": self._given["uv"], "downloads": str(folder)}


def emptied(text: str) -> str:
    """Return a Dockerfile whose commands only make the folders that later steps copy from.

    Stages, mounts, copies, arguments and labels stay as they are, and so does the length of what
    the engine has to compare: a command keeps its text, behind an exit.
    """
    first = f"mkdir -p {FOLDERS} && exit 0"
    lines = text.splitlines()
    out: list[str] = []
    in_run = False
    for line in lines:
        in_run = in_run or line.startswith("RUN ")
        starts = in_run and not _is_mount(line)
        if starts and "<<'EOT'" in line:
            out += [line, first]
            in_run = False
        elif starts:
            head = "RUN " if line.startswith("RUN ") else "    "
            out.append(f"{head}{first}; {line.removeprefix('RUN ').strip()}")
            in_run = False
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def _is_mount(line: str) -> bool:
    """Whether a line of a RUN has mounts only, and the command comes on a later one."""
    words = line.removeprefix("RUN ").split()
    return bool(words) and words[0].startswith("--") and words[-1] == "\\"


def _result(samples: list[Samples], count: int) -> Result:
    ours = samples[0]
    note = (
        f"{count} images. imgbuild asks the engine once; the others look through every step of "
        "every image."
    )
    speed = {n: ratio(find(samples, n), ours) for n in (SERIAL, PARALLEL, BAKE)}
    compared = ", ".join(f"{n}: {times(v)} × imgbuild's time" for n, v in speed.items())
    return Result(
        "nothing_to_do",
        [Section("Nothing to do, the whole matrix", timing_table(samples, ours), [note, compared])],
        [
            Goal("nothing to do, whole matrix, whole process", 0.5, ours.median(), "s"),
            Goal("nothing to do: speed beside bake", 3, speed[BAKE], "×", at_least=True),
            Goal("nothing to do: speed beside one after another", 15, speed[SERIAL], "×", True),
        ],
        samples,
        {"images": count},
    )


def add_options(parser: ArgumentParser) -> None:
    """Add the engine."""
    engines.add_options(parser)


if __name__ == "__main__":
    main("nothing_to_do", __doc__, measure, rounds=(5, 3), options=add_options)
