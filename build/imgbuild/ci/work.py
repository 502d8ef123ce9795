"""How much work an image is, stage by stage, and which of it another image needs as well. Pure.

Two images have a stage in common if BuildKit would build it once for both: everything that the
stage stands on or copies from is the same, down to the base image. Across stacks it is the stages
of Python packages that are the same by themselves (`imgbuild.build.shared_stages`).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from imgbuild.build.shared_stages import PREFIX
from imgbuild.dockerfile.stages import ARGUMENTS, Dockerfile, Stage, needed
from imgbuild.matrix.images import Image

#: The stage that is the image.
FINAL = "final"
#: What a stage's commands take, in seconds of one processor: measured while the debian family was
#: built (docs/evidence.md says on what), CPython and Open MPI by their own builds. They are
#: written down here, so that every machine makes the same shards of the same checkout.
SECONDS: Mapping[str, float] = {
    "os": 8,
    "cpython-build": 150,
    "conda": 20,
    "packages-tensorflow": 15,
    "compiler": 15,
    "cuda": 60,
    "cuda-compiler": 60,
    "mpi-source": 200,
    "horovod-build": 40,
}
#: The same of a stage that is not listed, for each command.
OTHER_SECONDS = 2.0
#: The suites of one image, with what it takes to write it out.
SUITES_SECONDS = 100.0


@dataclass(frozen=True)
class Work:
    """What an image needs: seconds by the key of a stage; equal keys are built once."""

    stages: Mapping[str, float]


def work_of(image: Image, dockerfile: Dockerfile) -> Work:
    """Return the work of an image from its Dockerfile."""
    stages = dockerfile.stages
    digests = {name: stage.digest for name, stage in stages.items()}
    last = FINAL if FINAL in stages else next(reversed(stages), "")
    arguments = digests.get(ARGUMENTS, "")
    found = {}
    for name in needed(stages, last):
        alone = name.split("-")[0] == PREFIX
        below = {n: s for n, s in stages.items() if n.split("-")[0] == PREFIX} if alone else stages
        parts = sorted(digests[one] for one in needed(below, name))
        system = "" if alone else image.os_name
        key = hashlib.sha256(json.dumps([arguments, system, parts]).encode()).hexdigest()
        found[f"{name} {key[:16]}"] = _seconds(stages[name], image)
    return Work({**found, f"suites {image.name}": SUITES_SECONDS})


def seconds(works: Iterable[Work]) -> float:
    """Return what images take together: what they have in common counts once."""
    return sum({key: value for work in works for key, value in work.stages.items()}.values())


def _seconds(stage: Stage, image: Image) -> float:
    compiled = stage.name == "mpi" and image.mpi.origin == "source"
    known = SECONDS.get("mpi-source" if compiled else stage.name)
    commands = sum(one.line.startswith("RUN") for one in stage.instructions)
    return OTHER_SECONDS * commands if known is None else known
