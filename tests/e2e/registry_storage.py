"""What docker-registry has on its disk, read without asking it: at any moment, and fast.

The layout is that of its `filesystem` driver: `blobs/sha256/AB/ABC…/data`, and a repository's links
to the blobs it has, to its manifests and its tags. Source: distribution's
registry/storage/paths.go.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_ROOT = "docker/registry/v2"
#: Blobs from this size on are shared between copies of a storage: a registry never changes one.
_SHARED_BYTES = 100_000


@dataclass(frozen=True)
class RegistryStorage:
    """One repository in the storage of a registry."""

    folder: Path
    repository: str
    _whole: set[tuple[int, int, int, str]] = field(default_factory=set)

    def tags(self) -> dict[str, str]:
        """Return the digest of each tag."""
        links = self.place("_manifests/tags").glob("*/current/link")
        return {link.parent.parent.name: link.read_text(encoding="ascii") for link in links}

    def document(self, digest: str) -> Any:
        """Return what a blob, such as a manifest, says."""
        return json.loads(self.path(digest).read_bytes())

    def missing(self, digest: str) -> list[str]:
        """Return what a manifest lacks: itself, and blobs that are not here or not as they say."""
        link = self.place("_manifests/revisions") / digest.replace(":", "/") / "link"
        if not link.exists() or not self._is_whole(digest):
            return [digest]
        manifest = self.document(digest)
        blobs = [manifest["config"], *manifest["layers"]]
        return [blob["digest"] for blob in blobs if not self._has(blob["digest"], blob["size"])]

    def mend(self) -> int:
        """Remove what docker-registry left half-written, as its operator has to; return how much.

        Up to 2.8 it writes links and manifests in place: on a full disk they stay empty.
        """
        links = [path for path in self.folder.rglob("link") if path.stat().st_size == 0]
        blobs = [path for path in self.folder.glob(f"{_ROOT}/blobs/*/*/*/data") if _cut(path)]
        for path in (*links, *blobs):
            path.unlink()
        return len(links) + len(blobs)

    def forget_images(self) -> None:
        """Forget every manifest and every small blob: what is left are the base image's layers."""
        shutil.rmtree(self.place("_manifests"))
        for path in self.folder.glob(f"{_ROOT}/blobs/*/*/*/data"):
            if path.stat().st_size < _SHARED_BYTES:
                shutil.rmtree(path.parent)
                shutil.rmtree(self.place(f"_layers/sha256/{path.parent.name}"), ignore_errors=True)

    def keep(self, kept: Path) -> None:
        """Keep all that the registry holds now, for `restore`."""
        shutil.copytree(self.folder, kept, copy_function=_copied)

    def restore(self, kept: Path) -> None:
        """Let the registry hold what it held, and nothing else; it may run, if nobody asks it."""
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            shutil.rmtree(path)
        shutil.copytree(kept, self.folder, copy_function=_copied, dirs_exist_ok=True)

    def _has(self, digest: str, size: int) -> bool:
        link = self.place("_layers") / digest.replace(":", "/") / "link"
        return link.exists() and self._is_whole(digest) and self.path(digest).stat().st_size == size

    def _is_whole(self, digest: str) -> bool:
        """Return whether a blob is what its digest says; a file that is known is not read again."""
        path = self.path(digest)
        if not path.exists():
            return False
        status = path.stat()
        known = (status.st_ino, status.st_mtime_ns, status.st_size, digest)
        if known not in self._whole:
            found = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
            if found != digest:
                return False
            self._whole.add(known)
        return True

    def path(self, digest: str) -> Path:
        """Return the file of a blob, which need not be there."""
        kind, _, name = digest.partition(":")
        return self.folder / _ROOT / "blobs" / kind / name[:2] / name / "data"

    def place(self, of: str) -> Path:
        """Return a folder of the repository, such as ``_manifests``."""
        return self.folder / _ROOT / "repositories" / self.repository / of


def _cut(path: Path) -> bool:
    """Return whether a blob is not what its folder's name says; large ones were uploaded whole."""
    small = path.stat().st_size < _SHARED_BYTES
    return small and hashlib.sha256(path.read_bytes()).hexdigest() != path.parent.name


def _copied(source: str, target: str) -> None:
    if os.stat(source).st_size >= _SHARED_BYTES:  # noqa: PTH116 - copytree gives texts
        with suppress(OSError):  # another file system
            os.link(source, target)
            return
    shutil.copy2(source, target)
