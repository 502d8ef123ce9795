"""``imgbuild diff``: show the differences between two images."""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import typer

from imgbuild.cli.options import JSON, PROJECT, info, print_result, repository
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows, wrap_words

if TYPE_CHECKING:
    from imgbuild.catalog.comparison import Sections, Value


def diff(
    first: str = typer.Argument(metavar="A", help="An image.", show_default=False),
    second: str = typer.Argument(metavar="B", help="Another image.", show_default=False),
    source: str | None = repository("--from", "Repository of the releases."),
    as_json: bool = JSON,
    checkout: Project = PROJECT,
) -> None:
    """Show the differences between two images.

    The command compares pins, GPUs, Python packages, sizes and suites. A and B can be the name, tag
    or alias of an image of the matrix, for example 2.2-gpu. To compare a release of this image, add
    the release, for example 2.2-gpu@20261120.1 or 2.2-gpu@published. A and B can also be references
    of images in the engine or a registry, for example me/train:1.

    Example: imgbuild diff 2.2 2.3
    """
    from imgbuild.catalog.comparison import SECTIONS, describe_image, differing
    from imgbuild.matrix.load import load_matrix

    log = cache(info)  # print a message only once if it concerns both images
    matrix = load_matrix(checkout.matrix)
    a, b = (describe_image(text, checkout, matrix, source, log) for text in (first, second))
    different = {name: differing(a[name], b[name]) for name in SECTIONS}
    text = "\n".join(_lines(a, b)).rstrip()
    print_result({"a": a, "b": b, "differing": different}, [text], as_json=as_json)


def _lines(first: "Sections", second: "Sections") -> Iterator[str]:
    from imgbuild.catalog.comparison import SECTIONS
    from imgbuild.core.differences import changed_values

    titles = (str(first["title"]), str(second["title"]))
    for name in SECTIONS:
        a, b = first[name], second[name]
        if isinstance(a, str) or isinstance(b, str):
            unknown = [
                f"{title} {section}"
                for title, section in zip(titles, (a, b), strict=True)
                if isinstance(section, str)
            ]
            yield from wrap_words(f"{name}: not compared. {'; '.join(unknown)}.", "")
            yield ""
            continue
        changed = changed_values(a, b)
        rows = [(key, *map(_value_text, pair)) for key, pair in changed.items()]
        if rows:
            if name == "packages":
                rows.sort()
            yield from align_rows([(name, *titles), *rows])
        same = [f"{key} {_value_text(value)}" for key, value in a.items() if key not in changed]
        if same and name == "packages":
            same = [str(len(same))]
        if same:
            yield from wrap_words(f"the same {name}: {', '.join(same)}")
        if rows or same:
            yield ""


def _value_text(value: "Value | None") -> str:
    """Return a value for display; a number is a size in bytes."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value / 1e6:,.1f} MB"
