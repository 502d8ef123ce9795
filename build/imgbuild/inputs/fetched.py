"""A folder that `imgbuild fetch` filled: the list of each image's inputs, and a build from it.

``images/<image>.json`` lists everything that an image is built from. A listing holds a short digest
of each kind of input that it was made for.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from imgbuild.errors import InputError
from imgbuild.files import (
    ContentStore,
    file_sha256,
    json_sha256,
    link_or_copy,
    sha256,
    stored_folder,
    write_text,
)
from imgbuild.inputs.build_inputs import CONDA, FILES, BuildInputs, image_downloads
from imgbuild.inputs.download import Download
from imgbuild.inputs.install_stages import arguments, needed_stages
from imgbuild.inputs.oci_layout import MANIFEST, BaseLayout, name_image, open_layout
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import LayoutBase, Settings

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


#: The named build context that the Dockerfiles mount, and where in it each kind is.
OFFLINE = "offline"
_PLACES = {
    Kind.PYTHON: "python",
    Kind.APT_LIST: "apt/lists",
    Kind.APT_PACKAGE: "apt/archives",
    Kind.APT_MIRRORS: "apt",
}


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


@dataclass(frozen=True)
class FetchedInputs:
    """The listings of images to be built, all of whose files are in ``folder``."""

    folder: Path
    listings: Mapping[str, Listing]
    cache: Path

    def contexts(self, image: str) -> Mapping[str, Path]:
        """Return the named contexts of one image: its downloads, packages and lists."""
        listing = self.listings[image]
        contexts = {FILES: listing.of(Kind.DOWNLOAD), CONDA: listing.of(Kind.CONDA)}
        flat = {
            name: self._folder(name, {item.name: item for item in items})
            for name, items in contexts.items()
            if items
        }
        placed = {f"{_PLACES[item.kind]}/{item.name}": item for item in listing.of(*_PLACES)}
        return {**flat, OFFLINE: self._folder(OFFLINE, placed)}

    def settings(self, settings: Settings, images: Iterable[Image]) -> Settings:
        """Return the settings of a build without a network: base images from here, no login."""
        bases = {i.os_name: self._base(self.listings[i.name], i.os_name) for i in images}
        return settings.model_copy(update={"base": bases, "netrc": None})

    def known_bases(self, inputs: BuildInputs, images: Iterable[Image]) -> BuildInputs:
        """Return the inputs with base images of a registry under their digest there.

        So an image that was built without a network is up to date where there is one.
        """
        bases = dict(inputs.bases)
        for image in images:
            digest = self.listings[image.name].base.rpartition("@")[2]
            if digest:
                bases[image.os_name] = replace(bases[image.os_name], digest=digest)
        return replace(inputs, bases=bases)

    def _base(self, listing: Listing, os_name: str) -> LayoutBase:
        layout = fetched_layout(listing, os_name, self.folder, self.cache / "contexts")
        return LayoutBase.model_validate({"from": "layout", "path": str(layout.path)})

    def _folder(self, name: str, files: Mapping[str, Item]) -> Path:
        pairs = sorted((path, item.sha256) for path, item in files.items())
        digest = json_sha256(pairs)

        def make(folder: Path) -> None:
            for path, item in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                _link_checked(ContentStore(self.folder), item.sha256, folder / path)

        def is_whole(folder: Path) -> bool:
            return all((folder / path).is_file() for path in files)

        return stored_folder(self.cache / "contexts" / f"{name}-{digest[:16]}", make, is_whole)


def open_fetched(
    folder: Path, images: Iterable[Image], project: Project, settings: Settings, cache: Path
) -> FetchedInputs:
    """Return the inputs of ``images`` in a fetched folder, after seeing that none is missing.

    Raises:
        InputError: an image was never fetched, or for other inputs, or files are missing.

    """
    listings = {image.name: _checked_listing(folder, image, project, settings) for image in images}
    return FetchedInputs(folder, listings, cache)


def _checked_listing(folder: Path, image: Image, project: Project, settings: Settings) -> Listing:
    listing = read_listing(folder, image.name)
    again = f"Run `imgbuild fetch` for it where there is a network, into {folder}."
    if listing is None:
        raise InputError(f"{folder} holds nothing for {image.name}. {again}")
    changed = changed_parts(listing.request, fetch_request(image, project, settings))
    others = [name for name in changed if name != BASE]
    if others:
        raise InputError(
            f"{folder} was fetched for other inputs of {image.name} than this checkout and these "
            f"settings have (changed: {', '.join(others)}). {again}"
        )
    missing = listing.missing(folder)
    if missing:
        first = f"{missing[0].name} ({missing[0].kind}, sha256 {missing[0].sha256})"
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{folder} lacks {first}{more} of {image.name}. {again}")
    return listing


def fetched_layout(listing: Listing, os_name: str, folder: Path, parent: Path) -> BaseLayout:
    """Return a listing's base image as an OCI layout in ``parent``, of the files in ``folder``."""
    store = ContentStore(folder)

    def make(empty: Path) -> None:
        content = store.path(listing.manifest).read_bytes()
        document = json.loads(content)
        top = {
            "mediaType": document.get("mediaType", MANIFEST),
            "digest": f"sha256:{listing.manifest}",
            "size": len(content),
        }
        blobs = empty / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        for digest in {item.sha256 for item in listing.of(Kind.BASE)}:
            _link_checked(store, digest, blobs / digest)
        name_image(empty, top, document, f"{os_name}-{{id}}")

    final = parent / f"{os_name}-{listing.manifest[:12]}"
    return open_layout(stored_folder(final, make, lambda path: (path / "oci-layout").is_file()))


def _link_checked(store: ContentStore, digest: str, target: Path) -> None:
    """Give a file of a fetched folder its place in a build context."""
    source = store.path(digest)
    if file_sha256(source) != digest:
        raise InputError(
            f"{source} was damaged since it was fetched. Remove it, run `imgbuild fetch` again "
            "where there is a network, and copy the folder anew."
        )
    link_or_copy(source, target)
