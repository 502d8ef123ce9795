"""Writing the Dockerfiles, and telling whether the committed ones are still the rendered ones."""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path

from imgbuild.files import write_text
from imgbuild.locks.layers import FOLDER, layer_files
from imgbuild.matrix.images import Image
from imgbuild.render.dockerfile import render_dockerfile

DOCKERFILE = "Dockerfile"


def dockerfile_path(image: Image, folder: Path) -> Path:
    """Return where the image's Dockerfile is committed."""
    return folder / image.name / DOCKERFILE


def render_all(images: Iterable[Image], templates: Path, folder: Path) -> dict[Path, str]:
    """Return by its path every Dockerfile's text, and every layer's beside the templates' locks."""
    chosen = tuple(images)
    dockerfiles = {dockerfile_path(i, folder): render_dockerfile(i, templates) for i in chosen}
    return {**dockerfiles, **layer_files(chosen, templates.parent / "locks")}


def write_all(rendered: Mapping[Path, str], folder: Path) -> list[Path]:
    """Write what changed, delete what belongs to no image; return the changed paths."""
    changed = [path for path, text in rendered.items() if _read(path) != text]
    for path in changed:
        write_text(path, rendered[path])
    stale = _stale(rendered, folder)
    for path in stale:
        path.unlink()
        if path.name == DOCKERFILE:
            path.parent.rmdir()
    return [*changed, *stale]


def find_drift(rendered: Mapping[Path, str], folder: Path) -> list[str]:
    """Return one paragraph a file that differs: its path, the first differing line, both sides."""
    drifted = [
        _difference(path, _read(path), text)
        for path, text in rendered.items()
        if _read(path) != text
    ]
    return [
        *drifted,
        *(f"{path}: belongs to no image of the matrix" for path in _stale(rendered, folder)),
    ]


def _difference(path: Path, committed: str | None, rendered: str) -> str:
    if committed is None:
        return f"{path}: is missing"
    pairs = zip_longest(committed.splitlines(), rendered.splitlines())
    for number, (old, new) in enumerate(pairs, 1):
        if old != new:
            return f"{path}:{number}: differs\n  committed: {_side(old)}\n  rendered:  {_side(new)}"
    return f"{path}: differs in line ends only"


def _side(line: str | None) -> str:
    return "(end of file)" if line is None else line


def _stale(rendered: Mapping[Path, str], folder: Path) -> list[Path]:
    """Return the Dockerfiles of no image, and the layers of no lock."""
    layers = {path.parent for path in rendered if path.parent.name == FOLDER}
    there = {*folder.glob(f"*/{DOCKERFILE}"), *(path for one in layers for path in one.iterdir())}
    return sorted(there - {*rendered})


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
