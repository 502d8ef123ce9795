"""``imgbuild verify --rebuild``: show the differences between an image and its rebuilt copy."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from imgbuild.cli.image_layers import instruction

if TYPE_CHECKING:
    from imgbuild.maintain.layer_files import Differences
    from imgbuild.maintain.reproduction import Reproduction

#: Maximum number of listed files per layer.
MOST = 10


def rebuild_lines(result: "Reproduction") -> Iterator[str]:
    """Yield a line per layer with its differing files, other differences, and a summary."""
    yield f"{result.reference} ({result.image}), and the same image built again:"
    for layer in result.layers:
        word = "same" if layer.same else "differs"
        yield f"  {word:<7} {layer.size / 1e6:8.1f} MB  {instruction(layer.made_by)}"
        if layer.files is None:
            yield "    cannot read the files of this layer"
        elif not layer.same and not layer.files:
            yield "    all files are the same, but their order or the archive format differs"
        files = [*(layer.files or {}).items()]
        counts = Counter(_fields(fields) for _, fields in files)
        # List files that differ only in their time last.
        files.sort(key=lambda file: [*file[1]] == ["time"])
        yield from (f"    {path}: {_fields(fields)}" for path, fields in files[:MOST])
        if len(files) > MOST:
            kinds = "; ".join(f"{count} {what}" for what, count in counts.most_common())
            yield f"    and {len(files) - MOST} more (see --json). All files: {kinds}"
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
    """Return the fields in which a file differs, or which of the two layers has it."""
    old, new = fields.get("type", ("", ""))
    alone = "only before" if new is None else "only now" if old is None else ""
    return alone or ", ".join(fields)
