"""Fetch everything that images are built from into one folder."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.build.context import BuildContext
from imgbuild.build.one_bake import export_stage, stage_target
from imgbuild.build.prepare import load_bases
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Stage
from imgbuild.errors import MachineError
from imgbuild.files import ContentStore, work_folder
from imgbuild.inputs.base_image import fetch_blobs, layout_items, registry_items
from imgbuild.inputs.build_inputs import CONDA
from imgbuild.inputs.download import fetch_all
from imgbuild.inputs.download_progress import DownloadProgress
from imgbuild.inputs.fetched import (
    Item,
    Kind,
    Listing,
    fetch_request,
    read_listing,
    store_file,
    write_listing,
)
from imgbuild.inputs.install_stages import needed_stages, plan_name, with_plan
from imgbuild.inputs.python_files import python_items
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import Settings, Sites

_APT_PLAN = "imgbuild-apt"
#: What ``apt-get --print-uris`` prints of each package: address, file name, bytes, hash.
_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")


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
        *_apt_items(image, needed_stages(image, job.project, job.settings), context, store),
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
    store = ContentStore(job.folder)
    missing = {item.sha256: item for listing in listings for item in listing.missing(job.folder)}
    for listing in listings:
        lacking = [item for item in listing.missing(job.folder) if item.kind is Kind.BASE]
        if lacking:
            fetch_blobs(listing.base, lacking, job.sites, store)
    others = [item.download for item in missing.values() if item.kind is not Kind.BASE]
    fetch_all(others, store, job.sites, progress)
    for listing in listings:
        items = (
            replace(item, size=store.path(item.sha256).stat().st_size) for item in listing.items
        )
        write_listing(replace(listing, items=tuple(items)), job.folder)
    return len(missing)


def _downloads(image: Image, context: BuildContext) -> Iterator[Item]:
    for name, files in context.inputs.downloads[image.name].contexts.items():
        kind = Kind.CONDA if name == CONDA else Kind.DOWNLOAD
        for file in files:
            yield Item(kind, file.file_name, file.url, file.sha256, file.size)


def _apt_items(
    image: Image, stages: Iterable[Stage], context: BuildContext, store: ContentStore
) -> tuple[Item, ...]:
    """Return every package that the stages install, and the lists, which are stored already.

    Each plan is made by apt itself, in the build stage where the packages would be installed, from
    the archive's signed lists. The lists are kept too: an installation without a network reads
    them.

    Raises:
        CheckFailedError: apt has no such package, or a stage cannot be built.
        MachineError: the engine or the archive cannot be reached.

    """
    planned = tuple(stages)
    with work_folder("apt") as folder:
        rendered = render_dockerfile(image, context.project.templates)
        dockerfile = folder / "Dockerfile"
        dockerfile.write_text(with_plan(rendered, planned, _APT_PLAN), encoding="utf-8")
        target = replace(
            stage_target(image, _APT_PLAN, {}, context),
            dockerfile=dockerfile,
            uncached=tuple(plan_name(stage) for stage in planned),
        )
        out = folder / "out"
        export_stage(target, out, context, shown=True)
        return tuple(dict.fromkeys(_planned_items(out, planned, store)))


def _planned_items(out: Path, stages: Iterable[Stage], store: ContentStore) -> Iterator[Item]:
    for stage in stages:
        folder = out / stage.name
        for line in (folder / "uris").read_text(encoding="utf-8").splitlines():
            yield _package(line)
        for path in sorted((folder / "lists").iterdir()):
            yield store_file(path, store, Kind.APT_LIST, path.name)
        yield store_file(folder / "upstreams", store, Kind.APT_MIRRORS, "upstreams")


def _package(line: str) -> Item:
    match = _URI.fullmatch(line.strip())
    if not match:
        raise MachineError(
            f"apt names a package without its sha256, so it cannot be fetched: {line!r}. The "
            "archive's lists must hold SHA256."
        )
    return Item(Kind.APT_PACKAGE, match[2], match[1], match[4], int(match[3]))
