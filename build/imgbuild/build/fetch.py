"""Fetch all inputs of images into one folder."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.build.context import BuildContext
from imgbuild.build.image_build import export_stage
from imgbuild.build.targets import stage_target
from imgbuild.core.files import ContentStore, ensure_folder, work_folder
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.core.sources import Source
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.inputs import fetched, upstream_files
from imgbuild.inputs.download import fetch_all
from imgbuild.inputs.oci_layout import is_whole
from imgbuild.matrix.images import Image
from imgbuild.net.sites import Sites

if TYPE_CHECKING:
    from rich.progress import Progress

_APT_PLAN = "imgbuild-apt"


def find_listing(
    image: Image, project: Project, settings: Settings, folder: Path
) -> fetched.Listing | None:
    """Return the image's listing if it fits the current inputs and can be completed."""
    listing = fetched.read_listing(folder, image.name)
    request = fetched.fetch_request(image, project, settings)
    if listing is None or listing.request != request:
        return None
    if not is_whole(listing.base_folder(folder)):
        return None
    missing = listing.missing(ContentStore(folder))
    return listing if all(item.url for item in missing) else None


def plan_listing(
    image: Image, sites: Sites, folder: Path, context: BuildContext
) -> fetched.Listing:
    """List the image's inputs, and write the list so that an interrupted fetch can resume.

    CheckFailedError: an upstream's file differs from the pinned one.
    MachineError: an upstream or the engine cannot be reached.
    """
    inputs, project = context.inputs, context.project
    base = inputs.bases[image.base_name]
    bases = folder / "base"
    if base.layout:
        reference = ""
        layout = _copy_layout(base.layout, base.reference, bases)
    else:
        reference = base.reference
        layout = upstream_files.fetch_layout(reference, image.os_name, bases, sites)
    downloads = inputs.downloads[image.name]
    items = (
        *downloads.all,
        *upstream_files.python_items(image, project.locks, sites),
        *_plan_apt_items(image, folder, context),
    )
    request = fetched.fetch_request(image, project, context.settings)
    listing = fetched.Listing(image.name, request, reference, layout.name, items)
    fetched.write_listing(listing, folder)
    return listing


def _copy_layout(layout: Path, reference: str, parent: Path) -> Path:
    def copy(folder: Path) -> None:
        shutil.copytree(layout, folder, dirs_exist_ok=True)

    tag = reference.rpartition(":")[2]
    return ensure_folder(parent / tag, copy, is_whole)


def _plan_apt_items(image: Image, store: Path, context: BuildContext) -> Iterable[Source]:
    """Return all apt packages that the image installs, and the package lists.

    apt plans each installation from the archive's signed lists, in the build stage that would
    install the packages. The lists are already in the store.
    """
    stages = fetched.install_stages(image, context.project, context.settings)
    with work_folder("apt") as folder:
        dockerfile = folder / "Dockerfile"
        rendered = render_dockerfile(image, context.project.templates)
        text = upstream_files.add_plans(rendered, stages, _APT_PLAN)
        dockerfile.write_text(text, encoding="utf-8")
        target = stage_target(image, _APT_PLAN, context.inputs, {}, context.project)
        plans = tuple(upstream_files.plan_name(stage) for stage in stages)
        target = replace(target, dockerfile=dockerfile, uncached=plans)
        export_stage(target, folder / "out", context, shown=True)
        items = upstream_files.apt_items(folder / "out", stages, ContentStore(store))
        return dict.fromkeys(items)


def fetch_files(
    listings: Sequence[fetched.Listing], sites: Sites, folder: Path, progress: "Progress"
) -> tuple[list[fetched.Listing], int]:
    """Fetch the missing files; return the listings with all sizes, and the number of new files."""
    store = ContentStore(folder)
    missing: dict[str, Source] = {}
    for listing in listings:
        for item in listing.missing(store):
            missing[item.sha256] = item
    fetch_all(missing.values(), store, sites, progress)
    complete = []
    for listing in listings:
        items = []
        for item in listing.items:
            status = store.path(item.sha256).stat()
            items.append(replace(item, size=status.st_size))
        whole = replace(listing, items=tuple(items))
        fetched.write_listing(whole, folder)
        complete.append(whole)
    return complete, len(missing)
