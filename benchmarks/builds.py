"""Time of cold builds with warm downloads: one image, and the family.

One image: imgbuild beside a single-stage Dockerfile written by hand (one_stage.j2, pip), and beside
its floor: the same stage up to uv's installation of the lock and the compilation of Horovod.
The family: one imgbuild with kept wheels beside each Dockerfile alone, one after another. Every run
starts without images and layers; the packages of apt, uv and pip lie in cache mounts. No suites
run; afterwards every image must import TensorFlow and Horovod.
"""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from measure import (
    DOCKER,
    IMGBUILD,
    ROOT,
    Contestant,
    compare,
    forget_images,
    options,
    publish,
    run,
    scratch_engine,
    timing_table,
)
from plain_builds import build_options, one_stage, supplied

from imgbuild.core.project import Project
from imgbuild.core.user_folders import cache_dir
from imgbuild.engine.build import BuildTarget
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix

#: Its wheel needs no other compiler than the system's.
USUAL = "tf-1.15-cpu-debian"
PROOF = "import tensorflow, horovod.tensorflow"


class Yard:
    """The engine, its start of every round, and the commands of all contestants."""

    def __init__(self, env: Mapping[str, str], folder: Path, images: Sequence[Image]) -> None:
        self.images = images
        self.cache = folder / "cache"
        self.env = {**env, "XDG_CACHE_HOME": str(self.cache)}
        if cache_dir().is_dir():
            ignore = shutil.ignore_patterns("horovod-wheels")
            shutil.copytree(cache_dir(), self.cache / "imgbuild", symlinks=True, ignore=ignore)
        own = supplied(images, Project(ROOT), self.env)
        self.own = {image.name: self._alone(own[image.name], image, folder) for image in images}
        self.single = {
            image.name: one_stage(image, self.own[image.name], Project(ROOT), folder)
            for image in images
        }
        self._folder = folder

    def _alone(self, target: BuildTarget, image: Image, folder: Path) -> BuildTarget:
        """Return a target whose contexts are folders, not other targets."""
        contexts = dict(target.contexts)
        for need in target.needs:
            place = folder / need.name
            output = f"--output=type=local,dest={place}"
            if not place.exists():
                run([DOCKER, "buildx", "build", output, *build_options(need, image)], self.env)
            names = [name for name, where in contexts.items() if where == f"target:{need.name}"]
            contexts |= dict.fromkeys(names, str(place))
        return replace(target, contexts=contexts)

    def cold(self, *, wheels: bool = False) -> None:
        """Remove images and layers, and Horovod's wheels; downloads stay."""
        forget_images(self.env)
        if not wheels:
            shutil.rmtree(self.cache / "imgbuild" / "horovod-wheels", ignore_errors=True)

    def imgbuild(self) -> list[str]:
        names = [image.name for image in self.images]
        return [IMGBUILD, "build", "--no-test", *names]

    def build(self, target: BuildTarget, *words: str) -> list[str]:
        """Return the command that builds a target by itself."""
        (image,) = (one for one in self.images if one.name == target.name)
        return [DOCKER, "buildx", "build", *words, *build_options(target, image)]

    def one_after_another(self) -> list[str]:
        """Return one command that builds each image's own Dockerfile."""
        lines = [
            shlex.join(self.build(target, "--tag", f"benchmark/alone:{name}"))
            for name, target in self.own.items()
        ]
        (self._folder / "serial.sh").write_text("\n".join(["set -e", *lines]), encoding="utf-8")
        return ["sh", str(self._folder / "serial.sh")]

    def contestant(
        self, name: str, command: list[str], references: Sequence[str], *, wheels: bool = False
    ) -> Contestant:
        """Return a way to make images, which begins cold; ``wheels`` of Horovod stay."""
        prepare, check = partial(self.cold, wheels=wheels), partial(self.prove, references)
        return Contestant(name, command, self.env, prepare, check)

    def warm(self) -> None:
        """Bring the packages of all images into the cache mounts."""
        for target in self.single.values():
            for stage in ("wheelhouse", "lock"):
                run(self.build(target, f"--target={stage}", "--output=type=cacheonly"), self.env)

    def prove(self, references: Sequence[str]) -> None:
        for reference in references:
            words = ("run", "--rm", "--network=none", "--entrypoint=/opt/python/bin/python3")
            run([DOCKER, *words, reference, "-c", PROOF], self.env)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("what", choices=("image", "family"))
    parser.add_argument("--images", nargs="+", metavar="NAME")
    chosen = parser.parse_args()
    known = {image.name: image for image in all_images(load_matrix(ROOT / "matrix.yaml"))}
    family = [i.name for i in known.values() if i.stack == "debian" and i.usual_mpi]
    names = chosen.images or ([USUAL] if chosen.what == "image" else family)
    with scratch_engine() as (env, folder):
        yard = Yard(env, folder, [known[name] for name in names])
        yard.warm()
        contestants = one_image(yard) if chosen.what == "image" else whole_family(yard)
        seconds = compare(contestants, chosen.rounds, warmups=0)
    base = contestants[-1].name
    publish(chosen.what, timing_table(seconds, base), write=chosen.write)


def one_image(yard: Yard) -> list[Contestant]:
    """Return the ways to build one image; the last is the floor."""
    (target,) = yard.single.values()
    (image,) = yard.images
    single = "benchmark/single:latest"
    tools = yard.build(target, "--target=tools", "--output=type=cacheonly")
    floor = yard.build(target, "--target=floor", "--output=type=cacheonly")

    def prepare_floor() -> None:
        yard.cold()
        run(tools, yard.env)

    by_hand = yard.build(target, "--tag", single)
    return [
        yard.contestant("imgbuild build", yard.imgbuild(), image.tags[:1]),
        yard.contestant("one stage by hand, pip", by_hand, [single]),
        Contestant("floor", floor, yard.env, prepare_floor),
    ]


def whole_family(yard: Yard) -> list[Contestant]:
    """Return the ways to build the family; wheels are kept after one build before."""
    tags = [image.tags[0] for image in yard.images]
    yard.cold()
    run(yard.imgbuild(), yard.env)
    alone = [f"benchmark/alone:{image.name}" for image in yard.images]
    serial = yard.one_after_another()
    return [
        yard.contestant("imgbuild build, wheels kept", yard.imgbuild(), tags, wheels=True),
        yard.contestant("each Dockerfile, one after another", serial, alone, wheels=True),
    ]


if __name__ == "__main__":
    main()
