"""``imgbuild fetch``: every input of the selected images into one folder."""

from dataclasses import replace
from pathlib import Path

import typer

from imgbuild.cli.options import PROJECT, echo, flag, info, select, takes_selection
from imgbuild.errors import InputError
from imgbuild.matrix.selection import Selection
from imgbuild.project import Project
from imgbuild.text import aligned, counted, size_text


@takes_selection()
def fetch(
    selection: Selection,
    folder: Path = typer.Argument(
        metavar="DIR", help="The folder; files in it are kept.", show_default=False
    ),
    refresh: bool = flag("--refresh", "Look for newer packages in the archives."),
    checkout: Project = PROJECT,
) -> None:
    """Fetch each input of the selected images for `build --offline`."""
    from imgbuild.build.context import BuildOptions, open_context
    from imgbuild.build.fetch import FetchJob, fetch_files, known_listing, plan_listing
    from imgbuild.build.prepare import with_bases
    from imgbuild.inputs.download import shown_progress
    from imgbuild.sites import Sites

    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder. Give a new or an existing one.")
    images = select(checkout, selection)
    settings = checkout.settings
    sites = Sites(images[0].matrix.upstream_urls, settings)
    job = FetchJob(checkout, settings, sites, folder.absolute())
    known = {image.name: None if refresh else known_listing(image, job) for image in images}
    new = tuple(image for image in images if known[image.name] is None)
    if new:
        with open_context(checkout, new, BuildOptions(), info) as opened_context:
            settings, inputs = with_bases(new, opened_context)
            context = replace(opened_context, settings=settings, inputs=inputs)
            job = replace(job, settings=settings)
            with context.display:
                known |= {image.name: plan_listing(image, job, context) for image in new}
    with shown_progress() as progress:
        listings, count = fetch_files([one for one in known.values() if one], job, progress)
    sizes = {one.image: {file.sha256: file.size or 0 for file in one.items} for one in listings}
    every = {digest: size for own in sizes.values() for digest, size in own.items()}
    rows = [[name, *_amount(own)] for name, own in sizes.items()]
    echo("\n".join(aligned(rows)))
    for one in listings:
        echo(one.contents(job.folder))
    total = f"{', '.join(_amount(every))} and the base images in {job.folder}"
    echo(f"{total}; {f'{count} fetched now' if count else 'nothing to fetch'}.")


def _amount(sizes: dict[str, int]) -> tuple[str, str]:
    return counted(len(sizes), "file"), size_text(sum(sizes.values()))
