"""Compile each Horovod wheel once, cache it for the user, and mount it into later builds."""

import hashlib
import json
import re
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

from imgbuild.build.targets import PACKAGES
from imgbuild.core.files import ensure_folder, file_sha256, sha256
from imgbuild.core.project import Project
from imgbuild.core.unpacking import open_member, read_member
from imgbuild.dockerfile.render import own_dockerfile
from imgbuild.dockerfile.stages import Stage, needed_stages
from imgbuild.inputs.build_inputs import SUPPLIED, BuildInputs
from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.images import Image

#: The stage whose only file is the wheel.
STAGE = "horovod-wheel"
#: Digits of a key that are enough to tell two wheels apart.
KEY_DIGITS = 16
#: Limit for the unpacked size of a wheel, in bytes. Horovod's, with code for every GPU, is far
#: smaller.
UNPACKED_LIMIT = 1 << 28
#: Limit for the file WHEEL, in bytes.
_TEXT_LIMIT = 1 << 20
_PIECE = 1 << 20
#: Stages below the compiler's stage that the key does not include as instructions. The key has the
#: release of the system, the minor version of Python and the relevant packages instead.
_KNOWN_OTHERWISE = ("os", "python", "cpython", "cuda", "installer", "framework", *SUPPLIED)
#: The packages that Horovod's setup.py uses, in addition to TensorFlow.
BUILDERS = ("cffi", "numpy", "pip", "setuptools", "wheel")


def wheel_key(image: Image, project: Project, inputs: BuildInputs) -> str | None:
    """Return the key of the image's Horovod wheel, as hexadecimal sha256; None without Horovod.

    Horovod's libraries are linked against one TensorFlow and one MPI; in the gpu variant also
    against one CUDA and NCCL. They are compiled by one compiler for one Python. The key covers all
    of these and the instructions that compile Horovod, and nothing else. A newer Werkzeug, a
    refreshed base image or a changed suite therefore does not recompile it.
    """
    dockerfile = own_dockerfile(image, project.templates)
    if STAGE not in dockerfile.stages:
        return None
    packages = {name for name in dockerfile.stages if name.split("-")[0] == PACKAGES}
    stages = needed_stages(dockerfile.stages, STAGE, {*_KNOWN_OTHERWISE, *packages})
    lock = read_lock(project.locks / image.lock_name)
    instructions: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    text = ""
    for stage_name, stage in stages.items():
        text += stage.text
        instructions[stage_name] = _own_instructions(stage)
        for path in stage.paths:
            if path.startswith("files/"):
                name = path.removeprefix("files/")
                files[name] = _digest_files(project.files / name)
    locks = {}
    for name in image.lock_names:
        if name in text:
            locks[name] = _digest_files(project.locks / name)
    names = (image.distribution, *BUILDERS)
    entries = {name: lock.entries[name] for name in names if name in lock.entries}
    mpi = [pin.sha256 for pin in image.pins if pin.component == "mpi"]
    downloads = inputs.downloads[image.name]
    parts: dict[str, object] = {
        "stages": instructions,
        "files": files,
        "locks": locks,
        "packages": entries,
        "system": image.os_name,
        "python": image.python_minor,
        "MPI": mpi,
        "substitutes": dict(downloads.arguments),
        "stand-in": inputs.standin,
    }
    if image.architecture != "amd64":
        parts["platform"] = image.platform
    content = json.dumps(parts, sort_keys=True)
    return sha256(content.encode())


def _own_instructions(stage: Stage) -> list[str]:
    """Return the instructions of a stage without comments and without copies of packages.

    The key lists the relevant packages separately.
    """
    lines = stage.text.splitlines(keepends=True)
    code = ""
    for line in lines:
        words = line.lstrip()
        if words and not words.startswith("#"):
            code += line
    instructions = re.findall(r"(?:.*\\\n)*.*\n", code)
    return [text for text in instructions if "COPY --link --from=packages" not in text]


def _digest_files(path: Path) -> str:
    """Return the sha256 of a file, or of all files in a folder."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            content = file_sha256(file)
            digest.update(f"{file.name}\0".encode())
            digest.update(bytes.fromhex(content))
    return digest.hexdigest()


def find_wheel(key: str, cache: Path) -> Path | None:
    """Return the cache folder with the wheel of ``key``; None if it is missing or damaged."""
    folder = _wheel_folder(key, cache)
    return folder if _is_whole(folder) else None


def keep_wheel(key: str, wheel: bytes, cache: Path) -> None:
    """Store a compiled wheel in the cache, unless it is damaged."""
    if name := wheel_file_name(wheel):

        def write(folder: Path) -> None:
            (folder / name).write_bytes(wheel)

        ensure_folder(_wheel_folder(key, cache), write, _is_whole)


def _wheel_folder(key: str, cache: Path) -> Path:
    return cache / "horovod-wheels" / key[:KEY_DIGITS]


def _is_whole(folder: Path) -> bool:
    """Return whether the folder contains exactly one file, an undamaged wheel."""
    if not folder.is_dir():
        return False
    files = [*folder.iterdir()]
    if len(files) != 1:
        return False
    wheel = files[0].read_bytes()
    return wheel_file_name(wheel) is not None


def wheel_file_name(wheel: bytes) -> str | None:
    """Return the file name of a wheel from its metadata; None if it is damaged. Source: PEP 427."""
    try:
        with zipfile.ZipFile(BytesIO(wheel)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > UNPACKED_LIMIT:
                return None
            (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
            text = read_member(archive, path, _TEXT_LIMIT).decode()
            tag = re.search(r"^Tag: (\S+)\s*$", text, re.MULTILINE)
            for member in members:
                with open_member(archive, member) as stream:
                    while stream.read(_PIECE):  # reading to the end verifies the checksum
                        pass
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    if not tag:
        return None
    stem = path.partition(".dist-info")[0]
    name = f"{stem}-{tag[1]}.whl"
    return name if Path(name).name == name else None
