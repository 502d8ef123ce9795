"""``imgbuild published``: what is in a registry, and under which tags."""

import json
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.telling import say

if TYPE_CHECKING:
    from imgbuild.publishing.index import Index
    from imgbuild.registry.client import RegistryClient

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="HOST[:PORT]/REPOSITORY",
        help="The repository. Default: publishing.repository of the settings.",
        show_default=False,
    ),
]


def published(
    source: FromOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Ask the registry whether every tag is what the index says; say how many are, and "
            "which images have no record.",
        ),
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Write the index anew from what the registry holds."),
    ] = False,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """List the images that were published, from the index in the registry itself.

    With --check, exit 1 if a tag is not there or is another image's.
    """
    from imgbuild.errors import CheckFailedError
    from imgbuild.publishing.index import Index, read_index
    from imgbuild.publishing.tag_check import digests, misplaced_tags, unrecorded_tags

    with closing(_open(source, project)) as registry:
        index = _rebuilt(registry) if rebuild else read_index(registry) or Index()
        _show(registry.name, index, as_json=as_json)
        faults = misplaced_tags(registry, index) if check else ()
        for text in unrecorded_tags(registry) if check else ():
            say(f"note: {text}")
    if faults:
        raise CheckFailedError("\n".join(faults))
    if check and index.records:
        count = len(digests(index))
        say(f"{count} tags are as the index says." if count > 1 else "1 tag is as the index says.")


def _open(source: str | None, project: "options.ProjectOption") -> "RegistryClient":
    from imgbuild.registry.client import connect
    from imgbuild.registry.repository import select_repository
    from imgbuild.settings import load_settings

    settings = load_settings(options.open_project(project).settings)
    repository, option = select_repository(source, settings, "--from")
    return connect(repository, settings, say, option=option)


def _rebuilt(registry: "RegistryClient") -> "Index":
    from imgbuild.publishing.index import rebuild_index

    index, changed = rebuild_index(registry, say)
    for change in changed:
        say(f"{change.what}: {change.tag}")
    say(f"The index of {registry.name} was {'written anew' if changed else 'right'}.")
    return index


def _show(name: str, index: "Index", *, as_json: bool) -> None:
    from imgbuild.cli.published_table import published_json, published_lines

    if not index.records:
        say(f"Nothing has been published in {name}.")
    if as_json:
        typer.echo(json.dumps(published_json(index), indent=2))
    elif index.records:
        typer.echo("\n".join(published_lines(index)))
