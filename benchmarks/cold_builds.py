"""Cold builds with warm downloads: one engine, its start brought about before every run."""

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import checkout, dockerfiles
from benchmarks.command import Setting
from benchmarks.engine import Engine, measuring_engine
from benchmarks.rounds import WrongResultError
from imgbuild.engine.bake import BakeTarget
from imgbuild.matrix.images import Image
from imgbuild.project import Project

#: Proves that an image is what it should be.
PROOF = "import tensorflow, horovod.tensorflow; print(tensorflow.__version__)"


@dataclass(frozen=True)
class Yard:
    """An engine, a copy of the checkout, and everything that the builds of ``images`` are given."""

    engine: Engine
    project: Project
    images: tuple[Image, ...]
    env: Mapping[str, str]
    work: Path
    cache: Path
    own: Mapping[str, BakeTarget] = field(default_factory=dict)
    single: Mapping[str, BakeTarget] = field(default_factory=dict)

    def image(self, name: str) -> Image:
        """Return one of the images; KeyError if it is none of them."""
        return {image.name: image for image in self.images}[name]

    def build(self, target: BakeTarget, *more: str) -> list[str]:
        """Return the command that builds ``target`` by itself."""
        words = dockerfiles.options(target, self.image(target.name))
        return [self.engine.buildx, "build", *more, *words]

    def named(self, target: BakeTarget, kind: str) -> list[str]:
        """Return the command that builds ``target`` and gives the image a name."""
        return self.build(target, "--tag", reference(target.name, kind))

    def do(self, command: Sequence[str]) -> None:
        """Run a build that is not measured; RuntimeError if it fails."""
        self.engine.ask_buildx(*command[1:])

    def script(self, name: str, commands: Sequence[Sequence[str]]) -> list[str]:
        """Return one command that runs ``commands`` one after another, up to the first failure."""
        path = self.work / f"{name}.sh"
        lines = ["set -e", *(shlex.join(command) for command in commands)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return ["sh", str(path)]

    def cold(self, cache: Path | None = None) -> None:
        """Bring about the start: no image, no layer, no wheel of Horovod; downloads stay.

        ``cache`` is another state of imgbuild's cache folder to start with, as one with wheels.
        """
        self.engine.cold()
        shutil.rmtree(self.work / "cache", ignore_errors=True)
        shutil.copytree(cache or self.cache, self.work / "cache", symlinks=True)

    def keep_wheels(self) -> None:
        """Keep what a cold build has just left in imgbuild's cache folder: Horovod's wheels."""
        saved = self.work / "with-wheels"
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(self.work / "cache", saved, symlinks=True)

    def cold_but_wheels(self) -> None:
        """Bring about the start with the wheels that were kept.

        Raises:
            WrongResultError: there was no cold build before that ended well.

        """
        saved = self.work / "with-wheels"
        if not saved.is_dir():
            raise WrongResultError("no cold build before it left any wheels")
        self.cold(saved)

    def prove(self, references: Sequence[str]) -> None:
        """Import TensorFlow and Horovod in every image, and compare the version.

        Raises:
            WrongResultError: an image is missing or does not work.

        """
        for name in references:
            words = ("run", "--rm", "--network=none", "--entrypoint=/opt/python/bin/python3", name)
            try:
                said = self.engine.ask(*words, "-c", PROOF)
            except RuntimeError as error:
                raise WrongResultError(f"{name} does not work: {error}") from error
            if said.split()[-1].rsplit(".", 1)[0] not in name:
                raise WrongResultError(f"{name} has TensorFlow {said.split()[-1]}")


def reference(name: str, kind: str) -> str:
    """Return the name of an image that something else than imgbuild makes."""
    return f"benchmark/{kind}:{name}"


@contextmanager
def yard(setting: Setting, names: Sequence[str], *, single: bool = True) -> Iterator[Yard]:
    """Give an engine in which the builds of these images find all downloads, and nothing else.

    Without ``single`` no wheelhouse of pip is filled.
    """
    project = checkout.copy_checkout(setting.work / "checkout")
    images = checkout.images(names, project)
    cache = setting.work / "start"
    checkout.seed_cache(cache)
    with measuring_engine(setting.work, setting.options) as engine:
        env = checkout.environment(setting.work, engine.host, cache=setting.work / "cache")
        own = dockerfiles.supplied(images, project, {**env, "XDG_CACHE_HOME": str(cache)})
        stages = {
            image.name: dockerfiles.one_stage(image, own[image.name], project, setting.work)
            for image in images
        }
        one = Yard(engine, project, images, env, setting.work, cache, own, stages)
        one.cold()
        warm(one, ("wheelhouse", "lock") if single else ("lock",), setting.say)
        yield one


def warm(one: Yard, stages: Sequence[str], say: Callable[[str], None]) -> None:
    """Fetch every package once, into the engine's cache mounts.

    apt's archives come with the first stage; uv's cache and pip's wheelhouse each by a stage that
    is no part of any image.
    """
    for name, target in one.single.items():
        say(f"warming the downloads of {name}")
        for stage in stages:
            one.do(one.build(target, f"--target={stage}", "--output=type=cacheonly"))
