"""One image published with gzip and with zstd, and pulled: time, and bytes in the registry.

`imgbuild push` of an image that is built and tested before the clock runs, into a registry on
loopback that is empty each time: with gzip the engine packs and sends, with zstd imgbuild does.
Then `docker pull` of either by an engine that has no layer of the image. The network is the
loopback, so what is measured is packing, unpacking and hashing; on a slower one the bytes count.
"""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import checkout
from benchmarks import engine as engines
from benchmarks.command import Setting, main
from benchmarks.engine import Engine
from benchmarks.process import run
from benchmarks.registry import Registry, own_registry
from benchmarks.results import Result, Section
from benchmarks.rounds import Contestant, WrongResultError, compare
from benchmarks.samples import Samples, ratio
from benchmarks.table import megabytes, table, times, timing_table
from imgbuild.project import Project

USUAL, QUICK = "tf-1.15-cpu-debian", "tf-1.10-cpu-debian"
GZIP, ZSTD = "gzip", "zstd"
#: No repository begins so: the base image goes, too.
NOTHING = "-"


@dataclass(frozen=True)
class Publishing:
    """An engine with one image that is built and tested, and a registry."""

    engine: Engine
    registry: Registry
    project: Project
    env: Mapping[str, str]
    work: Path
    name: str

    def build(self) -> None:
        """Build and test the image."""
        words = ["build", "--project", str(self.project.root), "--name", self.name]
        done = run([*checkout.imgbuild(), *words], self.work / "build.log", env=self.env)
        if done.code:
            raise WrongResultError(f"imgbuild build: {done.said}")

    def push(self, packing: str) -> list[str]:
        """Return the command that publishes it."""
        where = ["--project", str(self.project.root), "--to", f"{self.registry.host}/{packing}"]
        how = ["--compression", packing, "--allow-substituted", "--name", self.name]
        return [*checkout.imgbuild(), "push", *where, *how]

    def pull(self, packing: str) -> list[str]:
        """Return the command that pulls what was published."""
        return [self.engine.docker, "--host", self.engine.host, "pull", self._tag(packing)]

    def pushes(self) -> list[Contestant]:
        """Return both pushes, each into an empty registry by who never pushed before."""
        return [
            Contestant(
                f"imgbuild push, {packing}",
                self.push(packing),
                self.env,
                prepare=lambda _: self._begin(),
                check=lambda _: {"stored": self.registry.stored},
            )
            for packing in (GZIP, ZSTD)
        ]

    def pulls(self) -> list[Contestant]:
        """Return both pulls, by an engine that has nothing of the image."""
        self._begin()
        for packing in (GZIP, ZSTD):
            done = run(self.push(packing), self.work / f"push-{packing}.log", env=self.env)
            if done.code:
                raise WrongResultError(f"imgbuild push: {done.said}")
        return [
            Contestant(
                f"docker pull, {packing}",
                self.pull(packing),
                self.env,
                prepare=lambda _: self.engine.remove_images(NOTHING),
            )
            for packing in (GZIP, ZSTD)
        ]

    def _begin(self) -> None:
        self.registry.empty()
        for note in (self.work / "state/imgbuild/packed-layers").rglob("*.json"):
            note.unlink()

    def _tag(self, packing: str) -> str:
        return f"{self.registry.host}/{packing}:{self.name.removeprefix('tf-')}"


def measure(setting: Setting) -> Result:
    """Return the times of both ways, and what is stored."""
    name = setting.options.image or (QUICK if setting.quick else USUAL)
    project = checkout.copy_checkout(setting.work / "checkout")
    cache = setting.work / "cache"
    checkout.seed_cache(cache)
    with (
        engines.measuring_engine(setting.work, setting.options) as engine,
        own_registry(setting.work / "registry") as registry,
    ):
        env = checkout.environment(setting.work, engine.host, cache=cache)
        one = Publishing(engine, registry, project, env, setting.work, name)
        setting.say(f"building and testing {name}")
        one.build()
        samples = []
        for contestants in (one.pushes, one.pulls):
            samples += compare(
                contestants(),
                setting.rounds,
                setting.work,
                engine_pid=engine.pid,
                say=setting.say,
            )
    return _result(name, samples)


def _result(name: str, samples: Sequence[Samples]) -> Result:
    gzip, zstd, pull_gzip, pull_zstd = samples
    stored = table(
        ["in the registry", "MB", "× gzip"],
        [
            [word, megabytes(one.median("stored")), times(ratio(one, gzip, "stored"))]
            for word, one in ((GZIP, gzip), (ZSTD, zstd))
        ],
    )
    return Result(
        "compression",
        [
            Section(f"Publishing {name} into an empty registry", timing_table(samples[:2], gzip)),
            Section("Pulling it", timing_table([pull_gzip, pull_zstd], pull_gzip)),
            Section("Bytes", stored),
        ],
        [],
        samples,
        {"image": name},
    )


def add_options(parser: ArgumentParser) -> None:
    """Add what is published, and by which engine."""
    parser.add_argument("--image", help=f"which (default: {USUAL}; quick: {QUICK})")
    engines.add_options(parser)


if __name__ == "__main__":
    main("compression", __doc__, measure, rounds=(3, 1), options=add_options)
