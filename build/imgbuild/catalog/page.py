"""Write the catalog page as one HTML file, and the table of images in Markdown pages."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from itertools import groupby
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from imgbuild.core.errors import InputError
from imgbuild.core.files import read_user_file
from imgbuild.matrix.gpus import GENERATIONS, gpu_support
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rules import parse_numbers

if TYPE_CHECKING:  # this import is slow, and the table of images does not need it
    from imgbuild.catalog.entries import CatalogEntry

#: Marks a page that imgbuild wrote; other files are never overwritten.
GENERATOR = '<meta name="generator" content="imgbuild catalog">'
#: Pages in a checkout that may have the table of images, and the markers around it.
PAGES = ("README.md", "docs/images.md")
BEGIN, END = "<!-- images: begin -->", "<!-- images: end -->"
_FOLDER = Path(__file__).parent
#: The columns of the table of versions.
_VERSIONS = ("tensorflow", "python", "cuda", "cudnn", "nccl", "horovod")


def catalog_page(
    entries: "Sequence[CatalogEntry]",
    instruction: Callable[[str], str],
    *,
    repository: str | None,
    has_engine: bool,
    documented: bool = False,
) -> str:
    """Return the HTML page; the row of the matrix's default image comes first.

    The page has a row for each minor version of TensorFlow. ``repository`` is the source of the
    records. ``has_engine`` says whether an engine was queried, and ``documented`` whether the
    documentation is next to the page.
    """
    from imgbuild.catalog.entries import NOT_BUILT  # noqa: PLC0415
    from imgbuild.suites.results import NEEDS_GPU  # noqa: PLC0415

    entries = sorted(entries, key=lambda entry: entry.image.name)
    entries.sort(key=lambda entry: parse_numbers(entry.image.tensorflow), reverse=True)
    groups: dict[str, list[CatalogEntry]] = {}
    for entry in sorted(entries, key=lambda entry: not _is_default(entry.image)):
        groups.setdefault(entry.image.minor, []).append(entry)
    versions: dict[tuple[str, ...], list[CatalogEntry]] = {}
    gpus: dict[str, list[CatalogEntry]] = {}  # grouped by the GPUs that they support
    for entry in entries:
        row = tuple(entry.image.keys.get(name, "") for name in _VERSIONS)
        versions.setdefault(row, []).append(entry)
        if entry.facts["gpu"]:
            gpus.setdefault(str(entry.facts["gpu"]), []).append(entry)
    code = {name: (_FOLDER / f"page.{name}").read_text("utf-8") for name in ("css", "js")}
    # The hashes allow the style and the script in the Content-Security-Policy.
    hashes = {}
    for name, text in code.items():
        digest = hashlib.sha256(text.encode()).digest()
        hashes[name] = f"sha256-{b64encode(digest).decode()}"
    return _render(
        "page.html.j2",
        instruction=instruction,
        generator=GENERATOR,
        code=code,
        hashes=hashes,
        groups=groups.items(),
        is_default=_is_default,
        entries=entries,
        versions=versions,
        gpus=[*gpus.values()],
        generations=GENERATIONS,
        repository=repository,
        engine=has_engine,
        documented=documented,
        not_built=NOT_BUILT,
        needs_gpu=NEEDS_GPU,
    )


def _is_default(image: Image) -> bool:
    """Return whether commands without options use this image."""
    usual = image.matrix.defaults
    same = (usual.stack, usual.variant) == (image.stack, image.variant) and image.usual_mpi
    return same and usual.tensorflow in {image.minor, image.tensorflow}


def images_table(matrix: Matrix) -> str:
    """Return a Markdown table of images, with a row per TensorFlow minor and a column per stack."""
    ordered = sorted(all_images(matrix), key=lambda image: parse_numbers(image.tensorflow))
    groups = groupby(ordered, key=lambda image: image.minor)
    rows = [(minor, [*same]) for minor, same in groups]
    return _render("readme.md.j2", groups=rows, stacks=matrix.stacks, support=gpu_support)


def with_images_table(path: Path, table: str) -> str:
    """Return a page with the table between its markers; InputError if it has no markers."""
    text = read_user_file(path, f"--readme {path}", "Name a Markdown file.")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end or BEGIN in rest or END in before + after:
        raise InputError(
            f"--readme {path}: the table is written between a line {BEGIN} and a line {END}. "
            "Add both lines once, where the table belongs."
        )
    return f"{before}{begin}\n\n{table}\n{end}{after}"


def readme_texts(root: Path, matrix: Matrix) -> dict[Path, str]:
    """Return the pages in a checkout that have the markers, with the current table."""
    texts = {}
    for page in PAGES:
        path = root / page
        if path.is_file() and BEGIN in path.read_text(encoding="utf-8", errors="replace"):
            texts[path] = with_images_table(path, images_table(matrix))
    return texts


def page_file(folder: Path) -> Path:
    """Return the path of the page; InputError if another file is there."""
    page, what = folder / "index.html", f"--output {folder}"
    try:
        folders = (folder.absolute(), *folder.absolute().parents)
        there = next(filter(lexists, folders))
        if not there.is_dir():
            raise InputError(
                f"{what}: {there} is not a folder. Name a folder; the page is its index.html."
            )
        text = (
            read_user_file(page, f"{what}: {page.name}", largest=1 << 26)
            if lexists(page)
            else GENERATOR
        )
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InputError(f"{what}: {said}. Name a folder that can be read and written.") from error
    if GENERATOR not in text:
        raise InputError(
            f"{what}: imgbuild did not write its index.html, so it was not overwritten. Name "
            "another folder, or move the file."
        )
    return page


def _render(name: str, **values: Any) -> str:  # noqa: ANN401 - what the template shows
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=select_autoescape(["html.j2"]),  # Markdown is no HTML
        undefined=StrictUndefined,
    )
    environment.trim_blocks = environment.lstrip_blocks = environment.keep_trailing_newline = True
    environment.filters["mb"] = megabytes
    return environment.get_template(name).render(values)


def megabytes(size: int) -> str:
    """Return a size in MB (10⁶ bytes)."""
    return f"{size / 1e6:,.0f} MB" if size >= 9_950_000 else f"{size / 1e6:.1f} MB"
