"""The list of everything an image is built from: ``images/<image>.json`` of a fetched folder.

A listing holds a short digest of each kind of input that it was made for.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from imgbuild.errors import InputError
from imgbuild.files import ContentStore, file_sha256, sha256, write_text
from imgbuild.inputs.build_inputs import image_downloads
from imgbuild.inputs.download import Download
from imgbuild.inputs.install_stages import arguments, needed_stages
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import Settings

#: Raise it when a listing of before can no longer be built from.
SCHEMA = 1
#: The part that an offline build does not compare: it takes whatever base was fetched.
BASE = "base"
_SHORT = 12


class Kind(StrEnum):
    """What a fetched file is for."""

    DOWNLOAD = "download"
    CONDA = "conda-package"
    PYTHON = "python-distribution"
    BASE = "base-image"
    APT_LIST = "apt-list"
    APT_PACKAGE = "apt-package"
    APT_MIRRORS = "apt-mirrors"


@dataclass(frozen=True)
class Item:
    """One file: what for, its name, where it came from, its sha256 and size in bytes.

    Without ``url`` it was made on the machine that fetched.
    """

    kind: Kind
    name: str
    url: str
    sha256: str
    size: int | None = None

    @property
    def download(self) -> Download:
        """The file as the store knows it."""
        return Download(self.name, self.url, self.sha256, self.size)


def store_file(source: Path, store: ContentStore, kind: Kind, name: str) -> Item:
    """Return a file of this machine as an item, copied to ``store``."""
    item = Item(kind, name, "", file_sha256(source), source.stat().st_size)
    store.put(item.sha256, lambda part: shutil.copyfile(source, part))
    return item


@dataclass(frozen=True)
class Listing:
    """Everything one image is built from.

    ``request`` has a short digest of each kind of input, to find what changed since; ``base`` is
    the base image's reference in its registry, empty if it was made on the machine that fetched.
    """

    image: str
    request: Mapping[str, str]
    base: str
    items: tuple[Item, ...]

    def of(self, *kinds: Kind) -> tuple[Item, ...]:
        """Return the files of some kinds."""
        return tuple(item for item in self.items if item.kind in kinds)

    @property
    def manifest(self) -> str:
        """The sha256 of the base image's manifest."""
        return next(item.sha256 for item in self.of(Kind.BASE) if item.name == "manifest.json")

    def missing(self, store: Path) -> tuple[Item, ...]:
        """Return the files that ``store`` does not have, by name and size."""
        files = ContentStore(store)
        return tuple(item for item in self.items if not files.find(item.sha256, item.size))

    @property
    def size(self) -> int:
        """The bytes of all files whose size is known."""
        return sum(item.size or 0 for item in self.items)


def listing_path(folder: Path, image: str) -> Path:
    """Return where a fetched folder lists an image's inputs."""
    return folder / "images" / f"{image}.json"


def write_listing(listing: Listing, folder: Path) -> None:
    """Write the listing, whole or not at all."""
    text = json.dumps({"schema": SCHEMA, **asdict(listing)}, indent=1, sort_keys=True)
    write_text(listing_path(folder, listing.image), text + "\n")


def read_listing(folder: Path, image: str) -> Listing | None:
    """Return an image's listing, ``None`` if it was never fetched into ``folder``.

    Raises:
        InputError: the file is no listing, or one of another imgbuild.

    """
    path = listing_path(folder, image)
    if not path.exists():
        return None
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no listing of this imgbuild ({error}). Remove it and run `imgbuild fetch` "
            "again: the files beside it are kept."
        ) from error


def _parse(document: dict[str, Any]) -> Listing:
    if document.pop("schema") != SCHEMA:
        raise ValueError("another schema")
    items = tuple(Item(**{**item, "kind": Kind(item["kind"])}) for item in document.pop("items"))
    for item in items:
        _ = item.download  # refuses names that are paths, and what is no sha256
    return Listing(**document, items=items)


def fetch_request(image: Image, project: Project, settings: Settings) -> Mapping[str, str]:
    """Return a short digest of each kind of input.

    Raises:
        InputError: a lock is missing, or a conda package has no recorded sha256.

    """
    stages = needed_stages(image, project, settings)
    parts = {
        "downloads": image_downloads(image, project.locks, settings).digest,
        "lock": _text(project, image.lock_name),
        "build lock": _text(project, image.build_lock_name),
        "Horovod": image.horovod.sha256,
        "packages": json.dumps([[stage.parent, arguments(stage)] for stage in stages]),
        BASE: settings.base_for(image.os_name, image.os.image).model_dump_json(),
    }
    if image.mpi_lock_name:
        parts["MPI lock"] = _text(project, image.mpi_lock_name)
    return {name: sha256(value.encode())[:_SHORT] for name, value in parts.items()}


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the kinds of input that are others than ``before``."""
    return [name for name, value in now.items() if before.get(name) != value]


def _text(project: Project, name: str) -> str:
    path = project.locks / name
    if not path.exists():
        raise InputError(f"images/locks/{name} is missing. Run `imgbuild lock`.")
    return path.read_text(encoding="utf-8")
