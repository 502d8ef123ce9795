"""Horovod wheels: compiled once per key, kept in the user's cache, mounted into later builds."""

import hashlib
import json
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from imgbuild.build.context import BuildContext
from imgbuild.build.targets import PACKAGES
from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Stage, needed
from imgbuild.engine.bake import BakeTarget
from imgbuild.files import file_sha256, stored_folder, work_folder
from imgbuild.matrix.images import Image

#: The stage whose only file is the wheel.
STAGE = "horovod-wheel"
#: Enough of a key to tell two wheels apart.
KEY_DIGITS = 16
#: Stages that the compiler's stage stands on or copies from, known by more than their instructions:
#: the system by its release, the interpreter by its ABI, the packages by those that matter.
_KNOWN_OTHERWISE = ("os", "binutils", "python", "cpython", "cuda")
#: What compiles Horovod beside TensorFlow itself: its setup.py imports or builds with these.
BUILDERS = ("cffi", "numpy", "pip", "setuptools", "wheel")


def wheel_key(image: Image, context: BuildContext) -> str | None:
    """Return the sha256, in hexadecimal, over what decides the wheel; None if it compiles none.

    Horovod's libraries are linked against one TensorFlow, one MPI and, in the gpu variant, one CUDA
    and NCCL, by one compiler, for one Python. The key holds each of these and the instructions that
    compile it, and nothing else: a newer Werkzeug, a refreshed base image or another suite compile
    nothing.

    Raises:
        InputError: the image's lock is missing or damaged.

    """
    project, inputs = context.project, context.inputs
    dockerfile = render_dockerfile(image, project.templates)
    if STAGE not in dockerfile.stages:
        return None
    packages = {name for name in dockerfile.stages if name.split("-")[0] == PACKAGES}
    stages = needed(dockerfile.stages, STAGE, {*_KNOWN_OTHERWISE, *packages})
    entries = read_lock(project.locks / image.lock_name).entries
    lock_names = {
        name for stage in stages.values() for name in image.lock_names if name in stage.text
    }
    paths = sorted({path for stage in stages.values() for path in stage.paths})
    files = [path.removeprefix("files/") for path in paths if path.startswith("files/")]
    parts = {
        "stages": {name: _own_instructions(stage) for name, stage in stages.items()},
        "files": {name: _digest(project.files / name) for name in files},
        "locks": {name: _digest(project.locks / name) for name in lock_names},
        "packages": {n: entries[n] for n in (image.distribution, *BUILDERS) if n in entries},
        "system": image.os_name,
        "python": image.python_minor,
        "substitutes": dict(inputs.downloads[image.name].arguments),
        "stand-in": inputs.standin,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _own_instructions(stage: Stage) -> list[str]:
    """Return what the stage does, but for copies of packages: those that matter are known."""
    lines = stage.text.splitlines(keepends=True)
    code = "".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    found = re.findall(r"(?:.*\\\n)*.*\n", code)
    return [one for one in found if "COPY --link --from=packages" not in one]


def _digest(path: Path) -> str:
    """Return the sha256 over all files of a folder, or over one file."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.name}\0".encode() + bytes.fromhex(file_sha256(file)))
    return digest.hexdigest()


@dataclass(frozen=True)
class WheelStore:
    """Folders ``wheels/<key>/horovod-….whl`` in this user's cache."""

    cache: Path

    def find(self, key: str) -> Path | None:
        """Return the folder that holds only the wheel of ``key``, if it is there and whole."""
        folder = self._folder(key)
        return folder if is_whole(folder) else None

    def adopt(self, key: str, exported: Path) -> None:
        """Keep the wheel of a folder, if it holds a whole one.

        Raises:
            MachineError: the cache cannot be written.

        """
        if is_whole(exported):
            (wheel,) = exported.iterdir()
            stored_folder(self._folder(key), lambda fresh: _copy(wheel, fresh), is_whole)

    def _folder(self, key: str) -> Path:
        return self.cache / "wheels" / key[:KEY_DIGITS]


def _copy(wheel: Path, folder: Path) -> None:
    shutil.copyfile(wheel, folder / wheel.name)


def is_whole(folder: Path) -> bool:
    """Return whether the folder holds exactly one file, and that is a whole wheel."""
    files = [*folder.iterdir()] if folder.is_dir() else []
    return len(files) == 1 and files[0].suffix == ".whl" and wheel_file_name(files[0]) is not None


def wheel_file_name(wheel: Path | BinaryIO) -> str | None:
    """Return the file name of a wheel, by its metadata; None if it is damaged. Source: PEP 427."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
            tag = re.search(r"^Tag: (\S+)\s*$", archive.read(path).decode(), re.MULTILINE)
            damaged = archive.testzip()
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    name = f"{path.partition('.dist-info')[0]}-{tag[1]}.whl" if tag and not damaged else ""
    return name if name and Path(name).name == name else None


@dataclass(frozen=True)
class Wheels:
    """The folders of kept wheels by image; ``missing`` are keys of wheels, by the image to compile.

    A bake writes the missing ones below ``exports``.
    """

    kept: Mapping[str, Path]
    missing: Mapping[str, str]
    exports: Path

    def context(self, image: str) -> Mapping[str, Path]:
        """Return the named context that replaces the image's stage, if its wheel is kept."""
        return {STAGE: self.kept[image]} if image in self.kept else {}

    def export(self, target: BakeTarget) -> BakeTarget:
        """Return the target that writes the wheel of ``target`` into a folder."""
        return replace(
            target,
            name=f"{target.name}-{STAGE}",
            target=STAGE,
            labels={},
            output=f"type=local,dest={self.exports / target.name}",
        )


@contextmanager
def open_wheels(images: Sequence[Image], context: BuildContext) -> Iterator[Wheels]:
    """Give the wheels of ``images``; what the block exports is kept, also if it fails later.

    Raises:
        MachineError: the cache cannot be written.

    """
    store = WheelStore(context.cache)
    kept: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for image in images:
        key = wheel_key(image, context)
        folder = store.find(key) if key else None
        if folder:
            kept[image.name] = folder
        elif key and key not in missing.values():
            missing[image.name] = key
    with work_folder("wheels") as exports:
        try:
            yield Wheels(kept, missing, exports)
        finally:
            for name, key in missing.items():
                store.adopt(key, exports / name)
