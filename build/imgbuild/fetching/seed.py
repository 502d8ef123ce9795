"""A fetched folder as a seed: what it has is taken from it, and only the rest from the network."""

import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from imgbuild.errors import InputError
from imgbuild.fetching.base_files import fetched_layout
from imgbuild.fetching.listing import Listing
from imgbuild.fetching.offline import FetchedInputs, checked_listing
from imgbuild.files import ContentStore, file_sha256, work_folder
from imgbuild.inputs.base import adopt_base, find_base, save_archive
from imgbuild.inputs.build_inputs import base_recipe, image_downloads
from imgbuild.inputs.download import Download
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import BootstrapBase, Settings


def open_seed(
    folder: Path,
    images: Iterable[Image],
    project: Project,
    settings: Settings,
    cache: Path,
) -> tuple[FetchedInputs, tuple[str, ...]]:
    """Return the inputs of those images that the folder has whole, and why it lacks the others.

    Downloads and base images that the user's ``cache`` lacks are put there, of all images.

    Raises:
        MachineError: the cache cannot be written.

    """
    chosen, listings, lacking = tuple(images), dict[str, Listing](), list[str]()
    for image in chosen:
        _seed_downloads(image_downloads(image, project.locks, settings).all, folder, cache)
        try:
            listings[image.name] = checked_listing(folder, image, project, settings)
        except InputError as error:
            lacking.append(f"Packages of {image.name} come from the network: {error}")
    for image in chosen:
        if image.name in listings:
            _seed_base(image, listings[image.name], folder, settings, cache)
    return FetchedInputs(folder, listings, cache, partial=True), tuple(lacking)


def _seed_downloads(downloads: Iterable[Download], folder: Path, cache: Path) -> None:
    store, seed = ContentStore(cache / "downloads"), ContentStore(folder)
    for download in downloads:
        found = seed.find(download.sha256, download.size)
        if found and file_sha256(found) == download.sha256:
            store.put(download.sha256, partial(_copy, found), download.size)


def _copy(source: Path, part: Path) -> None:
    shutil.copyfile(source, part)


def _seed_base(
    image: Image, listing: Listing, folder: Path, settings: Settings, cache: Path
) -> None:
    """Take over a base that was made where the folder was filled, unless one was made here."""
    made = isinstance(settings.base_for(image.os_name, image.os.image), BootstrapBase)
    recipe = base_recipe(image)
    if made and find_base(recipe, cache) is None:
        layout = fetched_layout(listing, image.os_name, folder, cache / "contexts")
        with work_folder("seed") as work:
            save_archive(layout, work / "base.tar")
            adopt_base(recipe, cache, work / "base.tar")
