"""What a compiled Horovod wheel depends on, as one digest. Pure but for reading files.

Horovod's libraries are linked against one TensorFlow, one MPI and, in the gpu variant, one CUDA and
NCCL, by one compiler, for one Python. The key holds each of these and the instructions that compile
it, and nothing else: a newer Werkzeug, a refreshed base image or another suite compile nothing.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.dockerfile.stages import Dockerfile, Stage, needed
from imgbuild.inputs.build_inputs import BuildInputs
from imgbuild.matrix.images import Image, minor_of
from imgbuild.project import Project

#: The stage whose only file is the wheel.
STAGE = "horovod-wheel"
#: Stages that the compiler's stage stands on or copies from, known by more than their instructions:
#: the system by its release, the interpreter by its ABI, the packages by those that matter.
_KNOWN_OTHERWISE = ("os", "binutils", "python", "cpython", "cuda")
#: What compiles Horovod beside TensorFlow itself: its setup.py imports or builds with these.
BUILDERS = ("cffi", "numpy", "pip", "setuptools", "wheel")


def wheel_key(image: Image, dockerfile: Dockerfile, inputs: BuildInputs, project: Project) -> str:
    """Return the sha256, in hexadecimal, over everything that decides what the wheel is.

    Raises:
        InputError: the image's lock is missing or damaged.

    """
    stages = _compiling(dockerfile)
    entries = read_lock(project.locks / image.lock_name).entries
    lock_names = {
        name for stage in stages.values() for name in image.lock_names if name in stage.text
    }
    parts = {
        "stages": {name: _own_instructions(stage) for name, stage in stages.items()},
        "files": {name: _digest(project.files / name) for name in _files(stages)},
        "locks": {name: _digest(project.locks / name) for name in lock_names},
        "packages": {n: entries[n] for n in (image.distribution, *BUILDERS) if n in entries},
        "system": image.os_name,
        "python": minor_of(image.version_of("python")),
        "substitutes": dict(inputs.downloads[image.name].arguments),
        "stand-in": inputs.standin,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _compiling(dockerfile: Dockerfile) -> Mapping[str, Stage]:
    packages = {name for name in dockerfile.stages if name.split("-")[0] == "packages"}
    return needed(dockerfile.stages, STAGE, {*_KNOWN_OTHERWISE, *packages})


def _own_instructions(stage: Stage) -> list[str]:
    """Return what the stage does, but for copies of packages: those that matter are known."""
    lines = stage.text.splitlines(keepends=True)
    code = "".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    found = re.findall(r"(?:.*\\\n)*.*\n", code)
    return [one for one in found if "COPY --link --from=packages" not in one]


def _files(stages: Mapping[str, Stage]) -> list[str]:
    paths = {path for stage in stages.values() for path in stage.paths}
    return sorted(path.removeprefix("files/") for path in paths if path.startswith("files/"))


def _digest(path: Path) -> str:
    """Return the sha256 of a file, or over all files of a folder."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.name}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
