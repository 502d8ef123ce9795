"""Compute the input digest, the sha256 of everything that goes into an image.

Each input is one part: for example a Dockerfile stage, a file or folder that the Dockerfile mounts,
a lock or a download (docs/internals.md).
"""

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from imgbuild.core.errors import InputError
from imgbuild.core.files import json_sha256
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import committed_dockerfile
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.inputs.build_inputs import SUPPLIED, BuildInputs
from imgbuild.locks.lockfile import read_lock, require_layer_as_named
from imgbuild.locks.requirements import LockRequest, check_lock, lock_requests
from imgbuild.matrix.images import Image

#: Digits of a sha256 that are enough to tell two inputs apart in a label.
SHORT = 12
#: Words that begin the parts of stages and downloads, and end the parts of a lock's packages.
STAGE, DOWNLOAD, PACKAGES = "stage ", "download ", " packages"
NOT_MADE = "not made yet"
_DIGEST = re.compile(rf"(?:sha256:)?([0-9a-f]{{{SHORT}}})[0-9a-f]{{{64 - SHORT}}}")


@dataclass(frozen=True)
class InputDigest:
    """The digest of all inputs, and each part by name, so that changes can be explained.

    The value of a part is a version, a date, the packages of a lock, or a short digest.
    """

    total: str
    parts: Mapping[str, str]


class InputReader:
    """Reads and caches the files of a checkout; create a new reader to see later changes."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.digest = cache(self._digest)
        self.packages = cache(self._packages)
        self._require_lock = cache(self._check_lock)

    def dockerfile(self, image: Image) -> Dockerfile:
        """Return the image's committed Dockerfile; InputError if it differs from the rendered."""
        return committed_dockerfile(image, self.project)

    def require_locks(self, image: Image) -> None:
        """Raise InputError if a lock is damaged or does not match the matrix's requirements."""
        for request in lock_requests(image):
            self._require_lock(request)

    def _check_lock(self, request: LockRequest) -> None:
        problems = check_lock(request, self.project.locks)
        if problems:
            raise InputError(
                f"The lock does not fit the matrix: images/locks/{problems[0].rstrip('.')}. "
                "Run `imgbuild lock` and read the diff, then build."
            )

    def _packages(self, lock: str) -> str:
        versions = read_lock(self.project.locks / lock).versions
        return ",".join(f"{name}=={version}" for name, version in versions.items())

    def _digest(self, path: str) -> str:
        """Return the sha256, in hexadecimal, of a file or folder in the build context.

        The digest covers the sorted names, execute bits and contents of all files.
        """
        place = self.project.root / "images" / path
        digest = hashlib.sha256()
        files = [*_list_files(place)]
        if not files:
            raise InputError(
                f"images/{path}: a Dockerfile uses it, but the file is missing. Restore it, "
                "or remove it from images/templates and run `imgbuild render`."
            )
        for file in files:
            digest.update(f"{file.relative_to(place.parent)}\0".encode())
            digest.update(b"x" if file.stat().st_mode & stat.S_IXUSR else b"-")
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        require_layer_as_named(path, place)
        return digest.hexdigest()


def input_digest(image: Image, inputs: BuildInputs, reader: InputReader) -> InputDigest:
    """Return the digest of all inputs of ``image``.

    InputError: the committed Dockerfile or a lock is missing or out of date.
    """
    reader.require_locks(image)
    locks = image.titled_locks
    # Every build replaces the stages in SUPPLIED with inputs that are separate parts.
    whole_file = reader.dockerfile(image).stages.values()
    stages = [stage for stage in whole_file if stage.name not in SUPPLIED]
    paths: set[str] = set()
    for stage in stages:
        paths.update(stage.paths)
    paths -= {f"locks/{file}" for file in locks.values()}
    whole = {"epoch": image.matrix.epoch, **_outside_inputs(image, inputs)}
    packages = {}
    for name, file in locks.items():
        whole[name] = reader.digest(f"locks/{file}")
        packages[name + PACKAGES] = reader.packages(file)
    for stage in stages:
        whole[STAGE + stage.name] = stage.digest
    for path in paths:
        whole[path] = reader.digest(path)
    parts = {name: _shorten(value) for name, value in whole.items()}
    total = json_sha256(dict(sorted(whole.items())))
    return InputDigest(f"sha256:{total}", {**parts, **packages})


def _outside_inputs(image: Image, inputs: BuildInputs) -> dict[str, str]:
    """Return the inputs that are not files of the checkout."""
    outside = {
        "base": inputs.bases[image.base_name].digest or NOT_MADE,
        "CPython": inputs.interpreters[image.version_of("python"), image.machine].digest,
        # Another uv should install the same files because hashes are pinned, but nothing proves it.
        "uv": inputs.uv_version,
    }
    for context, files in inputs.downloads[image.name].contexts.items():
        # Include the context's name, because the same file in another context is another input.
        outside |= {f"{DOWNLOAD}{context}/{file.name}": file.sha256 for file in files}
    if image.architecture != "amd64":
        outside["platform"] = image.platform
    if image.apt_cuda and inputs.keyrings:
        outside["keyrings"] = inputs.keyrings.name
    if date := inputs.snapshots.get(image.os.distribution):
        outside["snapshot"] = date.name
    if inputs.standin:
        outside["stand-in"] = inputs.standin
    return outside


def _shorten(value: str) -> str:
    """Return the first digits of a sha256; return any other value unchanged."""
    match = _DIGEST.fullmatch(value)
    return match[1] if match else value


def _list_files(place: Path) -> Iterator[Path]:
    """Yield the file, the files in the folder or the matches of a ``COPY`` pattern, sorted."""
    roots = [place] if place.exists() else sorted(place.parent.glob(place.name))
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and "__pycache__" not in path.relative_to(root.parent).parts:
                yield path
