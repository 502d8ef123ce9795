"""Ask TensorFlow's own loader in each GPU image of `debian` about made-up GPUs and drivers.

The images are built one at a time, without suites, in an engine that is removed afterwards. With
--write, the answers go into tests/data/gpu_cells.json, where `make check` compares them with the
rules, and the table into docs/evidence.md.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from measure import (
    DOCKER,
    IMGBUILD,
    ROOT,
    forget_images,
    options,
    publish,
    run,
    scratch_engine,
    table,
)

from imgbuild.core.project import Project
from imgbuild.core.user_folders import cache_dir
from imgbuild.matrix.gpus import GENERATIONS
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from support.gpu_cells import (
    DRIVERS,
    Answers,
    ask_image,
    compile_driver,
    loader_differences,
    read_answers,
    write_answers,
)

STACK = "debian"
#: Room for an image for GPUs with its layers and packages, in bytes.
LITTLE_SPACE = 20 << 30
HEAD = ("image", "CUDA", "machine code", "PTX", "ignored", "cells", "differences")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("images", nargs="*", metavar="NAME", help="default: all")
    chosen = parser.parse_args()
    project = Project(ROOT)
    images = [
        image
        for image in all_images(load_matrix(project.matrix))
        if image.cuda and image.stack == STACK
    ]
    recorded = read_answers()
    asked = [image for image in images if not chosen.images or image.name in chosen.images]
    with scratch_engine() as (env, folder):
        driver, cache = folder / "driver.so", folder / "cache"
        compile_driver(driver)
        if cache_dir().is_dir():
            shutil.copytree(cache_dir(), cache / "imgbuild", symlinks=True)
        own = {**env, "XDG_CACHE_HOME": str(cache)}
        run([IMGBUILD, "matrix", *(image.name for image in asked), "--make-bases"], own)
        for image in asked:
            if shutil.disk_usage(folder).free < LITTLE_SPACE:
                forget_images(own)
            answers = recorded | {image.name: ask(image, driver, own)}
            # In the order of the matrix.
            recorded = {one.name: answers[one.name] for one in images if one.name in answers}
            print(f"{image.name}: {recorded[image.name]}", file=sys.stderr)
            if chosen.write:
                write_answers(recorded)
    rows = [[*_row(image, recorded[image.name])] for image in images if image.name in recorded]
    publish("gpu-cells", table(HEAD, rows), write=chosen.write, timed=False)


def ask(image: Image, driver: Path, env: Mapping[str, str]) -> Answers:
    """Build an image, ask it, and remove it; its layers stay, because images share some."""
    run([IMGBUILD, "build", image.name, "--no-test"], env)
    client = [DOCKER, "--host", env["DOCKER_HOST"]]
    answers = ask_image(image, image.tags[0], driver, client)
    run([*client, "image", "rm", image.tags[0]])
    return answers


def _row(image: Image, answers: Answers) -> Iterator[str]:
    yield image.name
    yield answers.cuda
    said = Counter(answers.loader.values())
    for kind in ("machine code", "PTX", "nothing"):
        yield str(said[kind])
    yield str(len(GENERATIONS) * len(DRIVERS))
    yield str(len(loader_differences(image, answers)))


if __name__ == "__main__":
    main()
