"""``imgbuild build --fetch``: download all inputs of the selected images into one folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli.options import echo, info, require_amd64, select
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows, count_text, size_text
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.inputs.fetched import Listing


def fetch_inputs(folder: Path, selection: Selection, checkout: Project, *, refresh: bool) -> None:
    """Download all inputs of the selected images into ``folder``, and keep its other files.

    With ``refresh``, look for newer packages in the archives.
    """
    from imgbuild.build.bases import provide_base
    from imgbuild.build.context import BuildOptions, open_context
    from imgbuild.build.fetch import fetch_files, find_listing, plan_listing
    from imgbuild.inputs.download import show_progress
    from imgbuild.net.sites import Sites

    if folder.exists() and not folder.is_dir():
        raise InputError(f"--fetch {folder} is not a folder. Give a new or an existing folder.")
    images = select(checkout, selection)
    require_amd64(images, "imgbuild build --fetch")
    settings, folder = checkout.settings, folder.absolute()
    sites = Sites(images[0].matrix.upstream_urls, settings)
    known: dict[str, Listing | None] = {}
    for image in images:
        known[image.name] = None
        if not refresh:
            known[image.name] = find_listing(image, checkout, settings, folder)
    new = tuple(image for image in images if known[image.name] is None)
    if new:
        with open_context(checkout, new, BuildOptions(), info) as context, context.display:
            for image in {image.base_name: image for image in new}.values():
                base = context.inputs.bases[image.base_name]
                provide_base(image, context.settings, base, context.engine, context.log)
            for image in new:
                known[image.name] = plan_listing(image, sites, folder, context)
    with show_progress() as progress:
        planned = [listing for listing in known.values() if listing]
        listings, count = fetch_files(planned, sites, folder, progress)
    rows, every = [], dict[str, int]()
    for listing in listings:
        sizes = {item.sha256: item.size or 0 for item in listing.items}
        rows.append((listing.image, *_amount(sizes)))
        every |= sizes
    echo("\n".join(align_rows(rows)))
    for listing in listings:
        echo(listing.contents(folder))
    total = f"{', '.join(_amount(every))} and the base images in {folder}"
    done = f"{count} fetched now" if count else "nothing to fetch"
    echo(f"{total}; {done}.")


def _amount(sizes: dict[str, int]) -> tuple[str, str]:
    return count_text(len(sizes), "file"), size_text(sum(sizes.values()))
