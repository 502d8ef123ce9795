"""``imgbuild diff``: in what two images differ."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING

import typer

from imgbuild.cli.options import JSON, PROJECT, info, print_result, repository
from imgbuild.project import Project
from imgbuild.text import aligned, wrapped

if TYPE_CHECKING:
    from imgbuild.catalog.comparison import ComparedImage, Value


def diff(
    first: str = typer.Argument(metavar="A", help="An image.", show_default=False),
    second: str = typer.Argument(metavar="B", help="Another one.", show_default=False),
    source: str | None = repository("--from", "The repository of releases."),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """Show in what two images differ.

    That is their pins, GPUs, Python packages, size and suites. Each is an image of the matrix by
    its name, tag or alias, such as 2.2-gpu; with a release of it, 2.2-gpu@20261120.1 or
    2.2-gpu@published; or the reference of an image in the engine or a registry, such as me/train:1.
    """
    from imgbuild.catalog.comparison import ImageFinder, differing

    log = cache(info)  # of both images the same
    finder = ImageFinder(checkout, source, log)
    images = finder.find(first), finder.find(second)
    a, b = (asdict(image) for image in images)
    different = {name: differing(a[name], b[name]) for name in a if name != "title"}
    result, text = {"a": a, "b": b, "differing": different}, "\n".join(_lines(*images)).rstrip()
    print_result(result, [text], as_json=as_json)


def _lines(first: "ComparedImage", second: "ComparedImage") -> Iterator[str]:
    from imgbuild.catalog.comparison import differing

    for name in ("pins", "gpus", "packages", "size", "suites"):
        a, b = getattr(first, name), getattr(second, name)
        unknown = [f"{i.title} {s}" for i, s in ((first, a), (second, b)) if isinstance(s, str)]
        if unknown:
            yield from wrapped(f"{name}: not compared. {'; '.join(unknown)}.", "")
            yield ""
            continue
        rows = [(key, *map(_shown, pair)) for key, pair in differing(a, b).items()]
        rows = sorted(rows) if name == "packages" else rows
        if rows:
            yield from aligned([(name, first.title, second.title), *rows])
        same = [f"{key} {_shown(value)}" for key, value in a.items() if b.get(key) == value]
        if same and name == "packages":
            same = [str(len(same))]
        if same:
            yield from wrapped(f"the same {name}: {', '.join(same)}")
        yield from [""] if rows or same else []


def _shown(value: "Value | None") -> str:
    """Return a value as people read it; a number is bytes."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value / 1e6:,.1f} MB"
