"""``imgbuild reproduce``: whether an image comes out the same when it is built once more."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import info, option, print_result, takes_selection
from imgbuild.cli.size_command import instruction
from imgbuild.core.errors import CheckFailedError
from imgbuild.core.project import Project
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.maintain.layer_files import Differences
    from imgbuild.maintain.reproduction import Reproduction

#: So many files of a layer are listed.
MOST = 10


@takes_selection()
def reproduce(
    selection: Selection,
    image: str | None = option(
        "--image IMAGE", "This image of the engine or of a registry, not an image of the matrix."
    ),
    builder: list[str] | None = options.BUILDER,
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Build images again; exit 1 if one differs from the first.

    Each image must be in the engine, or be a published one (--image). It is built from nothing,
    with the inputs that its labels name; tags and imgbuild's caches stay as they are.
    """
    from imgbuild.maintain.reproduction import reproduce as compare

    images = options.engine_images(checkout, selection, [image] if image else [])
    builders = tuple(builder or ())
    results = [compare(checkout, name, info, planned, builders) for name, planned in images]
    lines = chain.from_iterable(map(_lines, results))
    print_result([result.as_json() for result in results], lines, as_json=as_json)
    if different := [result.reference for result in results if not result.same]:
        raise CheckFailedError(f"Different when built again: {', '.join(different)}.")


def _lines(result: "Reproduction") -> Iterator[str]:
    yield f"{result.reference} ({result.image}), and the same image built again:"
    for layer in result.layers:
        word = "same" if layer.same else "differs"
        yield f"  {word:<7} {layer.size / 1e6:8.1f} MB  {instruction(layer.made_by)}"
        if layer.files is None:
            yield "    the files of this layer could not be read"
        elif not layer.same and not layer.files:
            yield "    all files are the same; their order or the archive's format differs"
        files = [*(layer.files or {}).items()]
        counts = Counter(_fields(fields) for _, fields in files)
        # First what differs in more than its time.
        files.sort(key=lambda file: [*file[1]] == ["time"])
        yield from (f"    {path}: {_fields(fields)}" for path, fields in files[:MOST])
        if len(files) > MOST:
            kinds = "; ".join(f"{count} {what}" for what, count in counts.most_common())
            yield f"    and {len(files) - MOST} more, which --json lists. Of all: {kinds}"
    for kind, pairs in (
        ("Debian package", result.packages),
        ("configuration", result.configuration),
    ):
        for name, (old, new) in pairs.items():
            before, after = old or "nothing", new or "nothing"
            yield f"  {kind}: {name} {before} → {after}"
    count = sum(not layer.same for layer in result.layers)
    configuration = "differs" if result.configuration else "is the same"
    total = len(result.layers)
    yield f"{total - count} of {total} layers are the same. The configuration {configuration}."


def _fields(fields: "Differences") -> str:
    """Return in what a file differs, or which layer alone has it."""
    old, new = fields.get("type", ("", ""))
    alone = "only before" if new is None else "only now" if old is None else ""
    return alone or ", ".join(fields)
