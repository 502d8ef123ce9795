"""What a build asks of a cache: `FolderCache` and `RegistryCache` are the two there are."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.errors import MachineError


class Kind(StrEnum):
    """The small files that are kept beside images."""

    WHEEL = "wheel"
    REPORT = "report"
    BASE = "base"


class CacheError(MachineError):
    """A cache cannot be read or written. It never fails a build."""


@dataclass(frozen=True)
class WantedImage:
    """A finished image, known by what it was made from."""

    name: str
    input_digest: str
    repository: str

    @property
    def key(self) -> str:
        """What it is kept under: the input digest's 64 hexadecimal digits."""
        return self.input_digest.removeprefix("sha256:")

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return whether an image with these labels says of itself that it is this one."""
        told = {NAME: self.name, INPUT_DIGEST: self.input_digest, REPOSITORY: self.repository}
        return told.items() <= labels.items()


def report_key(input_digest: str, layers: Sequence[str]) -> str:
    """Return what an image's verdicts are kept under, in 32 hexadecimal digits.

    The input digest decides the configuration, the layers are the files: together they are what
    suites see, whatever id an engine gives it.
    """
    return hashlib.sha256(json.dumps([input_digest, *layers]).encode()).hexdigest()[:32]


class BuildCache(Protocol):
    """A cache. Every method may raise an `ImgbuildError` or an ``OSError``."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def has_image(self, image: WantedImage) -> bool:
        """Return whether it is there, without reading all of it."""

    def restore(self, images: Sequence[WantedImage]) -> Sequence[WantedImage]:
        """Give the engine those images that are there and whole; return which they were."""

    def save_image(self, image: WantedImage, image_id: str) -> None:
        """Keep an image of the engine."""

    def release(self, image_id: str) -> None:
        """Take away the names that an image has for the cache's sake, if it has others."""

    def read(self, kind: Kind, key: str, folder: Path) -> Path | None:
        """Put a kept file into ``folder`` under its own name; ``None`` if it is not there."""

    def write(self, kind: Kind, key: str, file: Path) -> None:
        """Keep a file, in place of the one that was kept under this key."""

    def has(self, kind: Kind, key: str) -> bool:
        """Return whether such a file is there, without reading it."""
