"""Build from a fetched folder: its files are named build contexts, and no network is used."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.errors import InputError
from imgbuild.files import ContentStore, file_sha256, json_sha256, link_or_copy, stored_folder
from imgbuild.inputs.build_inputs import CONDA, FILES, BuildInputs
from imgbuild.inputs.listing import (
    BASE,
    Item,
    Kind,
    Listing,
    changed_parts,
    fetch_request,
    read_listing,
)
from imgbuild.inputs.oci_layout import MANIFEST, BaseLayout, name_image, open_layout
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import LayoutBase, Settings

#: The named build context that the Dockerfiles mount, and where in it each kind is.
OFFLINE = "offline"
_PLACES = {
    Kind.PYTHON: "python",
    Kind.APT_LIST: "apt/lists",
    Kind.APT_PACKAGE: "apt/archives",
    Kind.APT_MIRRORS: "apt",
}


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
