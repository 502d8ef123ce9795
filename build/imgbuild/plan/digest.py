"""The input digest: sha256 over everything that goes into an image. Pure but for reading files."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from imgbuild.errors import InputError
from imgbuild.locks.check import lock_problems
from imgbuild.locks.request import requests_of
from imgbuild.matrix.image import Image
from imgbuild.plan.inputs import BuildInputs
from imgbuild.project import Project
from imgbuild.render.dockerfile import render_dockerfile
from imgbuild.render.drift import dockerfile_path

#: Enough of a sha256 to tell two inputs apart in a label.
SHORT = 12


@dataclass(frozen=True)
class InputDigest:
    """The digest of all inputs, and the short digest of each kind, to say what changed."""

    total: str
    parts: Mapping[str, str]

    def changed_since(self, parts: Mapping[str, str]) -> list[str]:
        """Return the kinds of input whose digest is another than in ``parts``."""
        return [name for name, value in self.parts.items() if parts.get(name) != value]


def input_digest(image: Image, inputs: BuildInputs, project: Project) -> InputDigest:
    """Return the digest of everything that decides what is in ``image``.

    Raises:
        InputError: the committed Dockerfile or a lock is missing or not the current one.

    """
    _require_locks(image, project)
    base = inputs.bases[image.os_name]
    interpreter = inputs.interpreters[image.version_of("python")]
    parts = {
        "Dockerfile": _text(_committed_dockerfile(image, project)),
        "lock": _text(_lock(project, image.lock_name)),
        "build lock": _text(_lock(project, image.build_lock_name)),
        "files": _files(project.files),
        "base": base.digest or "not made yet",
        "CPython": interpreter.digest,
        "uv": inputs.uv_version,
        "downloads": inputs.downloads[image.name].digest,
    }
    if image.mpi_lock_name:
        parts["MPI lock"] = _text(_lock(project, image.mpi_lock_name))
    if image.cuda and inputs.keyrings:
        parts["keyrings"] = inputs.keyrings.name
    if inputs.standin:
        parts["stand-in"] = inputs.standin
    total = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    short = {
        name: hashlib.sha256(value.encode()).hexdigest()[:SHORT] for name, value in parts.items()
    }
    return InputDigest(f"sha256:{total}", short)


def _committed_dockerfile(image: Image, project: Project) -> str:
    path = dockerfile_path(image, project.dockerfiles)
    rendered = render_dockerfile(image, project.templates)
    if not path.exists() or path.read_text(encoding="utf-8") != rendered:
        where = path.relative_to(project.root)
        raise InputError(
            f"{where} is not what matrix.yaml and images/templates say. Run `imgbuild render`, "
            "read the diff, then build."
        )
    return rendered


def _require_locks(image: Image, project: Project) -> None:
    """Refuse locks that are damaged, or made for other requirements than the matrix has now."""
    for request in requests_of(image):
        problems = lock_problems(request, project.locks)
        if problems:
            raise InputError(
                f"The lock does not fit the matrix: images/locks/{problems[0].rstrip('.')}. Run "
                "`imgbuild lock` and read the diff, then build."
            )


def _lock(project: Project, name: str) -> str:
    return (project.locks / name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _files(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
