"""The checkout's files as digests see them, each read once however many images use it."""

import hashlib
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from imgbuild.dockerfile.lockfile import read_lock, require_layer_as_named
from imgbuild.dockerfile.render import committed_dockerfile
from imgbuild.dockerfile.requirements import lock_problems, requests_of
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.project import Project


class Reading:
    """One look at a checkout; make another one to see what was changed since."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.digest = cache(self._digest)
        self.versions = cache(self._versions)
        self._fitting: set[object] = set()

    def dockerfile(self, image: Image) -> Dockerfile:
        """Return the image's committed Dockerfile.

        Raises:
            InputError: it is not what the matrix and the templates say.

        """
        return committed_dockerfile(image, self.project)

    def require_locks(self, image: Image) -> None:
        """Refuse locks that are damaged, or made for other requirements than the matrix has now.

        Raises:
            InputError: the first fault, and what to do.

        """
        for request in requests_of(image):
            if request in self._fitting:
                continue
            problems = lock_problems(request, self.project.locks)
            if problems:
                raise InputError(
                    f"The lock does not fit the matrix: images/locks/{problems[0].rstrip('.')}. "
                    "Run `imgbuild lock` and read the diff, then build."
                )
            self._fitting.add(request)

    def _versions(self, lock: str) -> tuple[tuple[str, str], ...]:
        """Return the packages of a lock and their versions."""
        return tuple(read_lock(self.project.locks / lock).versions.items())

    def _digest(self, path: str) -> str:
        """Return the sha256, in hexadecimal, of a file or folder of the build context.

        Of a folder it is over sorted names, execute bits and contents.

        Raises:
            InputError: there is nothing of that name.

        """
        place = self.project.root / "images" / path
        digest = hashlib.sha256()
        found = False
        for file in _files(place):
            found = True
            digest.update(f"{file.relative_to(place.parent)}\0".encode())
            digest.update(b"x" if file.stat().st_mode & stat.S_IXUSR else b"-")
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        if not found:
            raise InputError(
                f"images/{path}: a Dockerfile takes it, but there is no such file. Bring it back, "
                "or take it out of images/templates and run `imgbuild render`."
            )
        require_layer_as_named(path, place)
        return digest.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    """Yield a file itself, the files in a folder, or what a pattern of ``COPY`` means, sorted."""
    places = [place] if place.exists() else sorted(place.parent.glob(place.name))
    for one in places:
        for path in sorted(one.rglob("*")) if one.is_dir() else [one]:
            if path.is_file() and "__pycache__" not in path.relative_to(one.parent).parts:
                yield path
