"""Time of a cold build of six images with their suites, by this checkout and by another one.

Every run starts without images, layers and results of suites; packages lie in cache mounts, and
Horovod's wheels are kept unless ``--compile`` is given.
"""

import os
import shutil
from functools import partial
from pathlib import Path

from measure import (
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

from imgbuild.core.user_folders import cache_dir

#: Three images on each of two releases of Python.
IMAGES = (
    *("tf-1.15-cpu-debian", "tf-2.2-cpu-debian", "tf-2.3-cpu-debian"),
    *("tf-2.12-cpu-debian", "tf-2.15-cpu-debian", "tf-2.18-cpu-debian"),
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("other", type=Path, help="a checkout of another revision")
    parser.add_argument("--images", nargs="+", metavar="NAME", default=IMAGES)
    parser.add_argument(
        "--containerd", action="store_true", help="use the engine's containerd store"
    )
    parser.add_argument("--compile", action="store_true", help="compile Horovod in each run")
    parser.add_argument("--no-test", action="store_true", help="run no suites")
    chosen = parser.parse_args()
    checkouts = {"this checkout": ROOT, "the other": chosen.other.resolve()}
    command = [IMGBUILD, "build", *chosen.images, *["--no-test"] * chosen.no_test]
    with scratch_engine(containerd=chosen.containerd) as (env, folder):
        cache = folder / "cache"
        if cache_dir().is_dir():
            shutil.copytree(cache_dir(), cache / "imgbuild", symlinks=True)
        contestants = []
        for name, checkout in checkouts.items():
            contestant_env = {
                **env,
                "XDG_CACHE_HOME": str(cache),
                "IMGBUILD_PROJECT": str(checkout),
                "PYTHONPATH": os.fspath(checkout / "build"),
            }
            prepare = partial(start_cold, contestant_env, compiles=chosen.compile)
            contestants.append(Contestant(name, command, contestant_env, prepare))
        run([IMGBUILD, "matrix", *chosen.images, "--make-bases"], contestants[0].env)
        run(command, contestants[0].env)  # it brings packages and wheels
        seconds = compare(contestants, chosen.rounds, warmups=0)
    publish("revisions", timing_table(seconds, "the other"), write=chosen.write)


def start_cold(env: dict[str, str], *, compiles: bool) -> None:
    """Remove images, layers and results of suites, and Horovod's wheels if it ``compiles``."""
    forget_images(env)
    shutil.rmtree(Path(env["XDG_STATE_HOME"]) / "imgbuild" / "reports", ignore_errors=True)
    if compiles:
        shutil.rmtree(
            Path(env["XDG_CACHE_HOME"]) / "imgbuild" / "horovod-wheels", ignore_errors=True
        )


if __name__ == "__main__":
    main()
