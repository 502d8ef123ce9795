"""Which committed Dockerfiles are the rendered ones, remembered so that nothing is rendered twice.

What was found equal once is equal again while nothing changed that rendering depends on: the
matrix, the templates, the locks, this package's code and the versions of what it renders with. All
of it is part of the name under which the sha256 of the Dockerfiles is kept. A memory that is
missing, damaged or cannot be written only costs the rendering.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from imgbuild.dockerfile.render import dockerfile_path, render_dockerfile
from imgbuild.errors import InputError, MachineError
from imgbuild.files import write_text
from imgbuild.matrix.images import Image
from imgbuild.matrix.model import Matrix
from imgbuild.project import Project

#: The parts of this package that decide what a Dockerfile says.
_CODE = ("dockerfile", "matrix")
_LIBRARIES = ("jinja2", "packaging")


class VerifiedDockerfiles:
    """The committed Dockerfiles of one checkout; without ``cache`` nothing is remembered.

    ``matrix`` is that of the images: what is rendered depends on the whole of it.
    """

    def __init__(self, project: Project, matrix: Matrix, cache: Path | None) -> None:
        self._project = project
        self._matrix = matrix
        root = hashlib.sha256(str(project.root).encode()).hexdigest()
        self._memory = cache and cache / "rendered" / f"{root[:16]}.json"
        self._changed = False

    def text(self, image: Image) -> str:
        """Return the image's committed Dockerfile, which is the rendered one.

        Raises:
            InputError: it is missing or another one.

        """
        path = dockerfile_path(image, self._project.dockerfiles)
        committed = path.read_bytes() if path.is_file() else b""
        digest, entry = hashlib.sha256(committed).hexdigest(), self._entry(image)
        if entry and self._known.get(entry) == digest:
            return committed.decode()
        rendered = render_dockerfile(image, self._project.templates)
        if committed != rendered.encode():
            where = path.relative_to(self._project.root)
            raise InputError(
                f"{where} is not what matrix.yaml and images/templates say. Run `imgbuild "
                "render`, read the diff, then build."
            )
        if entry:
            self._known[entry], self._changed = digest, True
        return rendered

    def remember(self) -> None:
        """Keep what was found, if anything new was, and if it can be kept."""
        if self._changed and self._memory:
            document = {"key": self._key, "verified": self._known, "sum": _sum(self._known)}
            # A cache that cannot be written is no reason to fail.
            with suppress(MachineError):
                write_text(self._memory, json.dumps(document, sort_keys=True))
            self._changed = False

    def _entry(self, image: Image) -> str | None:
        """Return what distinguishes the image from others of the matrix; None: not of it."""
        if self._memory is None or image.matrix is not self._matrix:
            return None
        parts = [image.name, image.repository, image.os_name, image.documented]
        row = [*parts, image.row.model_dump_json(), [repr(pin) for pin in image.pins]]
        return hashlib.sha256(json.dumps(row).encode()).hexdigest()

    @cached_property
    def _known(self) -> dict[str, str]:
        try:
            document = json.loads(self._memory.read_bytes()) if self._memory else {}
            found = document["verified"] if document["key"] == self._key else {}
            return found if document["sum"] == _sum(found) and isinstance(found, dict) else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    @cached_property
    def _key(self) -> str:
        """The sha256, in hexadecimal, over all that decides what is rendered."""
        package = Path(__file__).parents[1]
        code = [file for name in _CODE for file in (package / name).rglob("*.py")]
        parts = [
            sys.version,
            [version(name) for name in _LIBRARIES],
            self._matrix.model_dump_json(),
            _named(self._project.templates, self._project.templates.rglob("*")),
            _named(self._project.locks, self._project.locks.glob("*.txt")),
            _named(package, [*code, package / "scalars.py"]),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _sum(verified: Mapping[str, str]) -> str:
    """Return what tells that not a byte of the memory is another."""
    return hashlib.sha256(json.dumps(verified, sort_keys=True).encode()).hexdigest()


def _named(root: Path, files: Iterable[Path]) -> Mapping[str, str]:
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file()
    }
