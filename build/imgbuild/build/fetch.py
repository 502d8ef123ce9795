"""Fetch everything that images are built from into one folder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.build.exports import apt_items
from imgbuild.build.prepare import load_bases
from imgbuild.files import ContentStore
from imgbuild.inputs.base_image import fetch_blobs, layout_items, registry_items
from imgbuild.inputs.build_inputs import CONDA
from imgbuild.inputs.download import fetch_all
from imgbuild.inputs.download_progress import DownloadProgress
from imgbuild.inputs.install_stages import needed_stages
from imgbuild.inputs.listing import Item, Kind, Listing, fetch_request, read_listing, write_listing
from imgbuild.inputs.python_files import python_items
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import Settings
from imgbuild.sites import Sites


@dataclass(frozen=True)
class FetchJob:
    """What to fetch for, into which folder, and from where."""

    project: Project
    settings: Settings
    sites: Sites
    folder: Path


def known_listing(image: Image, job: FetchJob) -> Listing | None:
    """Return the image's listing if it was made for the inputs of now and can be completed.

    Raises:
        InputError: a lock is missing, or a conda package has no recorded sha256.

    """
    listing = read_listing(job.folder, image.name)
    if listing is None or listing.request != fetch_request(image, job.project, job.settings):
        return None
    lost = [item for item in listing.missing(job.folder) if not item.url]
    return None if lost else listing


def plan_listing(image: Image, job: FetchJob, context: BuildContext) -> Listing:
    """Return the list of the image's inputs, and write it: what is interrupted goes on from there.

    Raises:
        CheckFailedError: an upstream has something else than what is pinned.
        MachineError: an upstream or the engine cannot be reached.

    """
    store = ContentStore(job.folder)
    base = context.inputs.bases[image.os_name]
    if base.layout:
        load_bases([image.os_name], context)
    items = (
        *_downloads(image, context),
        *python_items(image, job.project.locks, job.sites),
        *(
            layout_items(base.layout, store)
            if base.layout
            else registry_items(base.reference, job.sites, store)
        ),
        *apt_items(image, needed_stages(image, job.project, job.settings), context, store),
    )
    request = fetch_request(image, job.project, job.settings)
    listing = Listing(image.name, request, "" if base.layout else base.reference, items)
    write_listing(listing, job.folder)
    return listing


def fetch_files(listings: Sequence[Listing], job: FetchJob, progress: DownloadProgress) -> int:
    """Fetch what the folder lacks of the listings; return how many files that were.

    Raises:
        CheckFailedError: a file is another one than its sha256 says.
        MachineError: a file cannot be had, or the folder cannot be written.

    """
    missing = {item.sha256: item for listing in listings for item in listing.missing(job.folder)}
    for base in {listing.base for listing in listings if _lacks_base(listing, job)}:
        mine = [item for item in _base_items(listings, base) if item.sha256 in missing]
        fetch_blobs(base, mine, job.sites, ContentStore(job.folder))
    others = [item.download for item in missing.values() if item.kind is not Kind.BASE]
    fetch_all(others, ContentStore(job.folder), job.sites, progress)
    for listing in listings:
        write_listing(_with_sizes(listing, job.folder), job.folder)
    return len(missing)


def _downloads(image: Image, context: BuildContext) -> Iterator[Item]:
    for name, files in context.inputs.downloads[image.name].contexts.items():
        kind = Kind.CONDA if name == CONDA else Kind.DOWNLOAD
        for file in files:
            yield Item(kind, file.file_name, file.url, file.sha256, file.size)


def _lacks_base(listing: Listing, job: FetchJob) -> bool:
    return any(item.kind is Kind.BASE for item in listing.missing(job.folder))


def _base_items(listings: Iterable[Listing], base: str) -> Iterator[Item]:
    for listing in listings:
        if listing.base == base:
            yield from listing.of(Kind.BASE)


def _with_sizes(listing: Listing, folder: Path) -> Listing:
    items = (
        replace(item, size=ContentStore(folder).path(item.sha256).stat().st_size)
        for item in listing.items
    )
    return replace(listing, items=tuple(items))
