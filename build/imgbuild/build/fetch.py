"""Fetch everything that images are built from into one folder."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.build.context import BuildContext
from imgbuild.build.image_build import export_stage
from imgbuild.build.prepare import load_base
from imgbuild.build.targets import stage_target
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.files import ContentStore, stored_folder, work_folder
from imgbuild.inputs import fetched, upstream_files
from imgbuild.inputs.download import fetch_all
from imgbuild.inputs.oci_layout import BaseLayout, is_whole
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import Settings
from imgbuild.sites import Sites
from imgbuild.sources import Source

if TYPE_CHECKING:
    from rich.progress import Progress

_APT_PLAN = "imgbuild-apt"


@dataclass(frozen=True)
class FetchJob:
    project: Project
    settings: Settings
    sites: Sites
    folder: Path

    @property
    def store(self) -> ContentStore:
        return ContentStore(self.folder)


def known_listing(image: Image, job: FetchJob) -> fetched.Listing | None:
    """Return the image's listing if it was made for the inputs of now and can be completed."""
    listing = fetched.read_listing(job.folder, image.name)
    request = fetched.fetch_request(image, job.project, job.settings)
    if listing is None or listing.request != request:
        return None
    whole = is_whole(listing.base_folder(job.folder))
    return listing if whole and all(item.url for item in listing.missing(job.store)) else None


def plan_listing(image: Image, job: FetchJob, context: BuildContext) -> fetched.Listing:
    """Return the list of the image's inputs, and write it: what is interrupted goes on from there.

    CheckFailedError: an upstream has something else than what is pinned.
    MachineError: an upstream or the engine cannot be reached.
    """
    base, bases = context.inputs.bases[image.os_name], job.folder / "base"
    if base.layout:
        load_base(base, context.engine)
        layout = _copied(base.layout, bases)
    else:
        layout = upstream_files.fetch_layout(base.reference, image.os_name, bases, job.sites)
    items = (
        *context.inputs.downloads[image.name].all,
        *upstream_files.python_items(image, job.project.locks, job.sites),
        *_apt_items(image, job, context),
    )
    request = fetched.fetch_request(image, job.project, job.settings)
    reference = "" if base.layout else base.reference
    listing = fetched.Listing(image.name, request, reference, layout.name, items)
    fetched.write_listing(listing, job.folder)
    return listing


def _copied(layout: BaseLayout, parent: Path) -> Path:
    def copy(folder: Path) -> None:
        shutil.copytree(layout.path, folder, dirs_exist_ok=True)

    return stored_folder(parent / layout.reference.rpartition(":")[2], copy, is_whole)


def _apt_items(image: Image, job: FetchJob, context: BuildContext) -> Iterable[Source]:
    """Return every package that the image installs, and the lists, which are stored already.

    Each plan is made by apt itself, in the build stage where the packages would be installed, from
    the archive's signed lists.
    """
    stages = fetched.install_stages(image, job.project, job.settings)
    with work_folder("apt") as folder:
        dockerfile = folder / "Dockerfile"
        rendered = render_dockerfile(image, job.project.templates)
        dockerfile.write_text(
            upstream_files.with_plans(rendered, stages, _APT_PLAN), encoding="utf-8"
        )
        target = replace(
            stage_target(image, _APT_PLAN, context.inputs, {}, job.project),
            dockerfile=dockerfile,
            uncached=tuple(upstream_files.plan_name(stage) for stage in stages),
        )
        export_stage(target, folder / "out", context, shown=True)
        return dict.fromkeys(upstream_files.apt_items(folder / "out", stages, job.store))


def fetch_files(
    listings: Sequence[fetched.Listing], job: FetchJob, progress: "Progress"
) -> tuple[list[fetched.Listing], int]:
    """Fetch what the folder lacks; return the listings with all sizes, and how many files came."""
    store, complete = job.store, []
    missing = {item.sha256: item for listing in listings for item in listing.missing(store)}
    fetch_all(missing.values(), store, job.sites, progress)
    for listing in listings:
        items = (replace(one, size=store.path(one.sha256).stat().st_size) for one in listing.items)
        complete.append(replace(listing, items=tuple(items)))
        fetched.write_listing(complete[-1], job.folder)
    return complete, len(missing)
