"""List the artifacts that images are made of, each once, with the images that need it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from imgbuild.audit.evidence import tags_of
from imgbuild.dockerfile.lockfile import Lock, read_lock
from imgbuild.matrix.images import Image


@dataclass(frozen=True)
class WheelNeed:
    """A TensorFlow wheel: distribution, version, Python tag, and the images it goes into."""

    distribution: str
    version: str
    python_tag: str
    images: tuple[Image, ...]

    @property
    def subject(self) -> str:
        """Its name in reports."""
        return f"{self.distribution} {self.version}"

    def fits(self, file: str) -> bool:
        """Return whether a file is this version's wheel for this Python on Linux x86-64."""
        start = f"{canonicalize_name(self.distribution).replace('-', '_')}-{self.version}-"
        linux = any(
            tag.interpreter == self.python_tag
            and tag.platform.endswith("_x86_64")
            and "linux" in tag.platform
            for tag in tags_of(file)
        )
        return file.startswith(start) and linux


@dataclass(frozen=True)
class SdistNeed:
    """A Horovod source distribution, and the images it is compiled for."""

    version: str
    sha256: str
    images: tuple[Image, ...]

    @property
    def subject(self) -> str:
        """Its name in reports."""
        return f"horovod {self.version}"

    @property
    def file(self) -> str:
        """Its file name in the index."""
        return f"horovod-{self.version}.tar.gz"


def wheel_needs(images: Iterable[Image]) -> tuple[WheelNeed, ...]:
    """Return the TensorFlow wheels of ``images``, in their order."""
    groups: dict[tuple[str, str, str], list[Image]] = {}
    for image in images:
        key = (image.distribution, image.tensorflow, image.python.wheel_tag)
        groups.setdefault(key, []).append(image)
    return tuple(WheelNeed(*key, tuple(group)) for key, group in groups.items())


def sdist_needs(images: Iterable[Image]) -> tuple[SdistNeed, ...]:
    """Return the Horovod source distributions of ``images``, in their order."""
    groups: dict[tuple[str, str], list[Image]] = {}
    for image in images:
        key = (image.version_of("horovod"), image.horovod.sha256)
        groups.setdefault(key, []).append(image)
    return tuple(SdistNeed(*key, tuple(group)) for key, group in groups.items())


def read_locks(images: Iterable[Image], folder: Path) -> dict[str, Lock]:
    """Return the locks of ``images`` by file name, those that exist.

    Raises:
        InputError: one is there and is no lock.

    """
    names = {name for image in images for name in image.lock_names}
    return {name: read_lock(folder / name) for name in sorted(names) if (folder / name).exists()}
