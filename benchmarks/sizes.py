"""Sizes of the CPU images of debian beside their budgets and the documented way; what they share.

The documented way is the single-stage Dockerfile by hand (one_stage.j2, pip) of the same versions,
built once with --documented on an engine of its own. The other figures are of the engine that
imgbuild uses: `imgbuild build --all --cpu --stack debian` must have been run.
"""

import json
import sys

from measure import DOCKER, IMGBUILD, ROOT, options, publish, run, scratch_engine, table
from plain_builds import build_options, one_stage, supplied

from imgbuild.core.project import Project
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix

MEGABYTE = 1_000_000
BUILD = "imgbuild build --all --cpu --stack debian"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--documented", action="store_true", help="build the documented way, too")
    chosen = parser.parse_args()
    family = all_images(load_matrix(ROOT / "matrix.yaml"))
    images = [i for i in family if i.stack == "debian" and i.variant == "cpu"]
    names = [image.name for image in images]
    found = json.loads(run([IMGBUILD, "show", "--layers", *names, "--json"]))
    missing = [one["name"] for one in found["images"] if not one["built"]]
    if missing:
        sys.exit(f"Not built: {', '.join(missing)}. Run {BUILD} first.")
    sizes = {one["name"]: one["size"] for one in found["images"]}
    documented = documented_sizes(images) if chosen.documented else {}
    rows = [
        (
            image.name,
            f"{sizes[image.name] / MEGABYTE:.0f}",
            f"{image.budget / MEGABYTE:.0f}" if image.budget else "-",
            f"{documented[image.name] / MEGABYTE:.0f}" if image.name in documented else "-",
        )
        for image in images
    ]
    for text, key in (
        ("sum of their sizes", "together"),
        ("stored together", "by_chain"),
        ("in a registry", "by_content"),
    ):
        rows.append((text, f"{found['family'][key] / MEGABYTE:.0f}", "-", "-"))
    head = ("image", "MB", "budget, MB", "one stage by hand, MB")
    publish("sizes", table(head, rows), write=chosen.write)


def documented_sizes(images: list[Image]) -> dict[str, int]:
    """Build every single-stage Dockerfile and return the bytes of its image."""
    sizes = {}
    with scratch_engine() as (env, folder):
        for name, target in supplied(images, Project(ROOT), env).items():
            (image,) = (one for one in images if one.name == name)
            single = one_stage(image, target, Project(ROOT), folder)
            words = build_options(single, image)
            warm = ("--target=wheelhouse", "--output=type=cacheonly")
            run([DOCKER, "buildx", "build", *warm, *words], env)
            run([DOCKER, "buildx", "build", "--tag", "benchmark/single", *words], env)
            size = run([DOCKER, "image", "inspect", "--format={{.Size}}", "benchmark/single"], env)
            sizes[name] = int(size)
    return sizes


if __name__ == "__main__":
    main()
