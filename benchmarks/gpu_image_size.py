"""How large an image is beside the same one as the documented Dockerfiles would have made it.

    python -m benchmarks.gpu_image_size [--settings FILE] NAME...

Both are built from the same inputs on the engine that imgbuild uses; the second from
``one_stage.j2``: one stage, development packages, compilers left in, and pip.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.dockerfiles import one_stage, options
from imgbuild.build.bake import bake_images
from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.prepare import fetch_downloads, load_bases
from imgbuild.build.targets import bake_target
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.bake import run_bake
from imgbuild.engine.buildx import build_environment
from imgbuild.files import work_folder
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.project import find_project

HERE = Path(__file__).resolve().parent


def measure(name: str) -> tuple[int, int]:
    """Return the bytes of the image as imgbuild makes it, and as one stage."""
    project = find_project(HERE)
    (image,) = (i for i in all_images(load_matrix(project.matrix)) if i.name == name)
    say = lambda text: print(text, file=sys.stderr)  # noqa: E731
    with (
        open_context(project, (image,), BuildOptions(), say) as context,
        work_folder("size") as folder,
    ):
        (item,) = context.plan(test=False)
        load_bases([image.os_name], context)
        downloads, _ = fetch_downloads([image], context, keep_going=False)
        (baked,) = bake_images([item], downloads, context)
        if baked.image_id is None:
            sys.exit(baked.error)
        target = bake_target(item, context.inputs, downloads[name], project, None)
        target = one_stage(image, target, project, folder)
        # pip's wheelhouse is a cache mount, which a stage beside the image fills.
        fill = [*options(target, image), "--target=wheelhouse", "--output=type=cacheonly"]
        buildx = [str(context.buildx.path), "build", *fill]
        subprocess.run(buildx, check=True, env=build_environment(context.host))
        other = run_bake(
            context.buildx,
            context.host,
            [target],
            log=context.state / "logs" / f"one-stage-{name}.log",
            listener=context.display.on_event,
            epoch=epoch_seconds(image),
        )[name]
        found = [context.engine.inspect(i) for i in (baked.image_id, other.image_id)]
        context.engine.discard(other.image_id)
    return tuple(stored.size if stored else 0 for stored in found)  # type: ignore[return-value]


def main() -> None:
    """Print a row an image: both sizes in MB, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", help="another file than the checkout's settings")
    parser.add_argument("names", nargs="+", metavar="NAME", help="such as tf-2.1-gpu-ubuntu")
    arguments = parser.parse_args()
    if arguments.settings:
        os.environ["IMGBUILD_SETTINGS"] = os.path.realpath(arguments.settings)
    for name in arguments.names:
        ours, documented = measure(name)
        print(
            f"{name}: {ours / 1e6:.0f} MB; in one stage {documented / 1e6:.0f} MB; "
            f"ratio {ours / documented:.2f}"
        )


if __name__ == "__main__":
    main()
