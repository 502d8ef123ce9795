"""``imgbuild base``: the base images that are made here, so that several machines have the same."""

from typing import Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.selecting import Chosen, selecting
from imgbuild.cli.telling import say


@selecting
def base(
    chosen: Chosen,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Make them again, with their archive's updates.")
    ] = False,
    cache_from: Annotated[
        list[str] | None,
        typer.Option(
            "--cache-from",
            metavar="SRC",
            help="Take them from a folder or HOST[:PORT]/REPOSITORY if it has them; repeatable.",
        ),
    ] = None,
    cache_to: Annotated[
        list[str] | None,
        typer.Option(
            "--cache-to",
            metavar="DEST",
            help="Keep them in a folder or HOST[:PORT]/REPOSITORY; repeatable.",
        ),
    ] = None,
    project: options.ProjectOption = None,
) -> None:
    """Make the base images of the selected images, or take them from a cache; build nothing.

    A base image that is made is of its archive's state of the day. Machines that build one family
    together, such as the jobs of a CI, have the same if one of them does this first.
    """
    from imgbuild.build.opening import Opening, open_planner
    from imgbuild.caches.place import cache_place
    from imgbuild.text import aligned

    opened = options.open_project(project)
    images = chosen.images(opened)
    opening = Opening(
        say,
        refresh=refresh,
        sources=tuple(cache_place("--cache-from", value) for value in cache_from or ()),
        targets=tuple(cache_place("--cache-to", value) for value in cache_to or ()),
    )
    with open_planner(opened, images, opening) as found:
        bases = found.planner.inputs.bases
        rows = [[name, base.origin, base.reference] for name, base in bases.items()]
        typer.echo("\n".join(aligned(rows)))
