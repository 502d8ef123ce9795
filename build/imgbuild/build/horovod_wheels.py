"""Horovod wheels: compiled once per key, kept in the user's cache, mounted into later builds."""

import base64
import csv
import hashlib
import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.build.targets import PACKAGES
from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Stage, needed
from imgbuild.engine.bake import BakeTarget
from imgbuild.files import stored_folder, work_folder
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
    stages = _compiling(dockerfile.stages)
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


def _compiling(stages: Mapping[str, Stage]) -> Mapping[str, Stage]:
    packages = {name for name in stages if name.split("-")[0] == PACKAGES}
    return needed(stages, STAGE, {*_KNOWN_OTHERWISE, *packages})


def _own_instructions(stage: Stage) -> list[str]:
    """Return what the stage does, but for copies of packages: those that matter are known."""
    lines = stage.text.splitlines(keepends=True)
    code = "".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    found = re.findall(r"(?:.*\\\n)*.*\n", code)
    return [one for one in found if "COPY --link --from=packages" not in one]


def _digest(path: Path) -> str:
    """Return the sha256 of a file, or over all files of a folder."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.name}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@dataclass(frozen=True)
class WheelStore:
    """Folders ``<key>/horovod-….whl``. A damaged wheel counts as missing."""

    folder: Path

    def find(self, key: str) -> Path | None:
        """Return the folder that holds only the wheel of ``key``, if it is there and whole."""
        found = self._place(key)
        return found if is_whole(found) else None

    def adopt(self, key: str, exported: Path) -> Path | None:
        """Keep the wheel of a folder; ``None`` if it holds no whole wheel.

        Raises:
            MachineError: the cache cannot be written.

        """
        if not is_whole(exported):
            return None

        def make(fresh: Path) -> None:
            for wheel in exported.glob("*.whl"):
                shutil.copyfile(wheel, fresh / wheel.name)

        return stored_folder(self._place(key), make, is_whole)

    def _place(self, key: str) -> Path:
        return self.folder / key[:KEY_DIGITS]


def wheel_store(context: BuildContext) -> WheelStore:
    """Return the wheels of this user."""
    return WheelStore(context.cache / "wheels")


def is_whole(folder: Path) -> bool:
    """Return whether the folder holds exactly one wheel, with all files of its RECORD."""
    files = [*folder.iterdir()] if folder.is_dir() else []
    return len(files) == 1 and files[0].suffix == ".whl" and _is_as_recorded(files[0])


def wheel_file_name(content: bytes) -> str | None:
    """Return the file name of a wheel, by its metadata; None if it has none. Source: PEP 427."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
            tag = re.search(r"^Tag: (\S+)\s*$", archive.read(path).decode(), re.MULTILINE)
    except (ValueError, zipfile.BadZipFile):
        return None
    name = f"{path.partition('.dist-info')[0]}-{tag[1]}.whl" if tag else ""
    return name if name and Path(name).name == name else None


def _is_as_recorded(wheel: Path) -> bool:
    """Return whether each file has the hash that the RECORD names. Source: PEP 427."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = {name for name in archive.namelist() if not name.endswith("/")}
            (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
            rows = [row for row in csv.reader(archive.read(record).decode().splitlines()) if row]
            recorded = {name: value for name, value, *_ in rows if value}
            return names == {*recorded, record} and all(
                value == f"sha256={_urlsafe_sha256(archive.read(name))}"
                for name, value in recorded.items()
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return False


def _urlsafe_sha256(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@dataclass(frozen=True)
class Wheels:
    """Keys and kept folders by image; ``exports`` is where a bake writes the missing ones."""

    keys: Mapping[str, str]
    kept: Mapping[str, Path]
    exports: Path

    def context(self, image: str) -> Mapping[str, Path]:
        """Return the named context that replaces the image's stage, if its wheel is kept."""
        return {STAGE: self.kept[image]} if image in self.kept else {}

    def is_missing(self, image: str) -> bool:
        """Return whether the image's bake has to compile, and is the one that exports the wheel."""
        key = self.keys.get(image)
        first = next((name for name, known in self.keys.items() if known == key), None)
        return image not in self.kept and image == first

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
    store = wheel_store(context)
    found = {image.name: wheel_key(image, context) for image in images}
    keys = {name: key for name, key in found.items() if key}
    kept = {name: store.find(key) for name, key in keys.items()}
    with work_folder("wheels") as exports:
        wheels = Wheels(keys, {name: place for name, place in kept.items() if place}, exports)
        try:
            yield wheels
        finally:
            for name, key in keys.items():
                if wheels.is_missing(name):
                    store.adopt(key, exports / name)
