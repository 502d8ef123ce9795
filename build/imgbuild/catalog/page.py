"""The page, one file with its style and script inside; the table of a README; where they go."""

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

if TYPE_CHECKING:  # what it reads from is slow to import, and the README's table needs none of it
    from imgbuild.catalog.entries import CatalogEntry

#: It says who wrote the page: another's file is never replaced.
GENERATOR = '<meta name="generator" content="imgbuild catalog">'
#: Pages of a checkout that may have the table of images, and what it stands between.
PAGES = ("README.md", "docs/images.md")
BEGIN, END = "<!-- images: begin -->", "<!-- images: end -->"
_FOLDER = Path(__file__).parent
#: The columns of the page's table of versions that go together.
_VERSIONS = ("tensorflow", "python", "cuda", "cudnn", "nccl", "horovod")


def catalog_page(
    entries: "Sequence[CatalogEntry]",
    instruction: Callable[[str], str],
    *,
    repository: str | None,
    has_engine: bool,
    documented: bool = False,
) -> str:
    """Return the page; ``instruction`` shortens the step that made a layer.

    ``repository`` is the one whose records were read, and ``has_engine`` whether an engine was
    asked. ``documented``: the documentation's site is beside it. The default of the matrix is
    first.
    """
    from imgbuild.catalog.entries import NOT_BUILT  # noqa: PLC0415
    from imgbuild.suites.results import NEEDS_GPU  # noqa: PLC0415

    entries = sorted(entries, key=lambda entry: entry.image.name)
    entries.sort(key=lambda entry: parse_numbers(entry.image.tensorflow), reverse=True)
    ordered = sorted(entries, key=lambda entry: not _is_default(entry.image))
    groups = groupby(ordered, key=_title)
    versions: dict[tuple[str, ...], list[CatalogEntry]] = {}
    gpus: dict[str, list[CatalogEntry]] = {}  # together those that serve the same GPUs
    for entry in entries:
        row = tuple(entry.image.keys.get(name, "") for name in _VERSIONS)
        versions.setdefault(row, []).append(entry)
        if entry.facts["gpu"]:
            gpus.setdefault(str(entry.facts["gpu"]), []).append(entry)
    code = {name: (_FOLDER / f"page.{name}").read_text("utf-8") for name in ("css", "js")}
    # How a Content-Security-Policy names a style or script.
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
        groups=[(title, [*same]) for title, same in groups],
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


def _title(entry: "CatalogEntry") -> str:
    title = f"TensorFlow {entry.image.tensorflow}"
    return f"{title}, the default of the command line" if _is_default(entry.image) else title


def _is_default(image: Image) -> bool:
    """Return whether the image is what a command without options means."""
    usual = image.matrix.defaults
    same = (usual.stack, usual.variant) == (image.stack, image.variant) and image.usual_mpi
    return same and usual.tensorflow in {image.minor, image.tensorflow}


def images_table(matrix: Matrix) -> str:
    """Return the table of images in Markdown: a row a minor of TensorFlow, a column a stack."""
    ordered = sorted(all_images(matrix), key=lambda image: parse_numbers(image.tensorflow))
    groups = groupby(ordered, key=lambda image: image.minor)
    rows = [(minor, [*same]) for minor, same in groups]
    return _render("readme.md.j2", groups=rows, stacks=matrix.stacks, support=gpu_support)


def with_images_table(path: Path, table: str) -> str:
    """Return a page with the table between its markers; InputError if it lacks them."""
    text = read_user_file(path, f"--readme {path}", "Name a Markdown file.")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end or BEGIN in rest or END in before + after:
        raise InputError(
            f"--readme {path}: the table is written between a line {BEGIN} and a line {END}. "
            "Write both lines, once, where it shall stand."
        )
    return f"{before}{begin}\n\n{table}\n{end}{after}"


def readme_texts(root: Path, matrix: Matrix) -> dict[Path, str]:
    """Return the pages of a checkout that have the markers, each with its table."""
    texts = {}
    for page in PAGES:
        path = root / page
        if path.is_file() and BEGIN in path.read_text(encoding="utf-8", errors="replace"):
            texts[path] = with_images_table(path, images_table(matrix))
    return texts


def page_file(folder: Path) -> Path:
    """Return the file that the page becomes; InputError if something else has its place."""
    page, what = folder / "index.html", f"--output {folder}"
    try:
        folders = (folder.absolute(), *folder.absolute().parents)
        there = next(filter(lexists, folders))
        if not there.is_dir():
            raise InputError(f"{what}: {there} is no folder. Name one; the page is its index.html.")
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
            f"{what}: its index.html was not written by imgbuild, and stays. Name another folder, "
            "or move the file away."
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
