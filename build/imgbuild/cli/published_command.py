"""``imgbuild published``: list what is in a repository. 1 MB is 10⁶ bytes."""

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imgbuild.cli import options
from imgbuild.cli.options import info, option, print_json
from imgbuild.errors import CheckFailedError
from imgbuild.text import fitted, wrapped

if TYPE_CHECKING:
    from imgbuild.publish.published import PublishedRepository
    from imgbuild.publish.record import Record

#: Digits of a digest that are shown, as engines show them.
_DIGITS = 12


def published(
    source: Annotated[
        str | None,
        option(
            "--from HOST[:PORT]/REPOSITORY",
            "The repository. Default: publishing.repository of the settings.",
        ),
    ] = None,
    check: Annotated[
        bool,
        option(
            "--check", "Compare every tag with the records; exit 1 if one is missing or differs."
        ),
    ] = False,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """List the published images, from the tags and records in the repository."""
    from imgbuild.publish.published import read_published
    from imgbuild.registry.repository_client import connect
    from imgbuild.settings import load_settings

    settings = load_settings(options.open_project(project).settings)
    with closing(connect(source, settings, info, "--from")) as registry:
        found = read_published(registry)
    if not found.whole:
        info(f"Nothing has been published in {found.name}.")
    if as_json:
        print_json(published_json(found))
    elif found.whole:
        typer.echo("\n".join(published_lines(found)))
    faults = [*found.faults()]
    for text in found.notes() if check else faults:
        info(f"note: {text}")
    if check and faults:
        raise CheckFailedError("\n".join(faults))
    if check and found.whole:
        count = len(found.digests)
        info(f"{count} {'tag is' if count == 1 else 'tags are'} as the records say.")


def published_lines(found: "PublishedRepository") -> list[str]:
    """Return the table, by image, of each the latest first.

    Below a row are the suites that did not pass, if there are any, and what the image can be pulled
    by: the immutable tag, then those moving tags that point to it now.
    """
    records = sorted(found.whole, key=lambda record: record.age, reverse=True)
    records.sort(key=lambda record: record.image)
    header = ("image", "digest", "MB", "published", "suites")
    lines, *rows = fitted([header, *(_row(record) for record in records)])
    for row, record in zip(rows, records, strict=True):
        tags = (record.tag, *found.moving(record))
        lines += [*row, *wrapped(_others(record)), *wrapped(tags)]
    return lines


def published_json(found: "PublishedRepository") -> list[dict[str, Any]]:
    """Return every record without its report; ``points_here`` are the moving tags it has now."""
    return [
        {
            **{key: value for key, value in record.as_json().items() if key != "report"},
            "points_here": list(found.moving(record)),
        }
        for record in found.whole
    ]


def _row(record: "Record") -> tuple[str, ...]:
    digest = record.digest.removeprefix("sha256:")[:_DIGITS]
    when = record.published[:16].replace("T", " ")
    passed = sum(one.verdict == "passed" for one in record.suites)
    return record.image, digest, f"{record.size / 1e6:.1f}", when, f"{passed} passed"


def _others(record: "Record") -> list[str]:
    """Return the words for the suites that did not pass: those that were skipped."""
    other = [f"{one.suite} {one.verdict}" for one in record.suites if one.verdict != "passed"]
    return f"suites: {', '.join(other)}".split() if other else []
