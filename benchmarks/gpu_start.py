"""Time of `docker run IMAGE true` with the check of the GPU, and without it.

The image is a GPU image in the engine. It runs without a driver, and with the made-up driver of the
tests, which answers at once. docs/evidence.md says how much longer a real driver takes.
"""

import tempfile
from pathlib import Path

from measure import DOCKER, Contestant, compare, options, publish, timing_table

from support.gpu_cells import compile_driver, driver_options

START = "/usr/local/lib/imgbuild/gpu-start"
A100 = f"NVIDIA A100,8,0,{80 << 30},{80 << 30},0,0"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("image", nargs="?", default="imgbuild/tensorflow:2.12-gpu")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "driver.so"
        compile_driver(library)
        gpu = [*driver_options(library), "--env=MADE_UP_DRIVER=580.159.04"]
        gpu.append(f"--env=MADE_UP_GPUS={A100}")
        # Hide the check: the entry point skips a file that is not executable.
        hidden = f"--volume=/dev/null:{START}:ro"
        contestants = [
            Contestant("no check", _start(chosen.image, hidden)),
            Contestant("check, no driver", _start(chosen.image)),
            Contestant("check, made-up GPU", _start(chosen.image, *gpu)),
            Contestant("IMGBUILD_GPU=off", _start(chosen.image, "--env=IMGBUILD_GPU=off")),
        ]
        seconds = compare(contestants, chosen.rounds)
    publish("gpu-start", timing_table(seconds, "no check"), write=chosen.write)


def _start(image: str, *words: str) -> list[str]:
    return [DOCKER, "run", "--rm", "--pull=never", *words, image, "true"]


if __name__ == "__main__":
    main()
