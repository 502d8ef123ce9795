"""The index's pages of every project that the matrix and its locks name."""

from collections.abc import Iterable
from dataclasses import dataclass

from imgbuild.audit.failure import ReadError, UnreachableError
from imgbuild.audit.project_page import Project, read_project
from imgbuild.audit.sources import Sources
from imgbuild.parallel import in_parallel

_WORKERS = 8


@dataclass(frozen=True)
class Pages:
    """Projects by name, and a paragraph for each that could not be read."""

    projects: dict[str, Project]
    unread: dict[str, str]


def read_pages(sources: Sources, names: Iterable[str]) -> Pages:
    """Read one page; if the index answers at all, then all others at once.

    Raises:
        UnreachableError: the package index does not answer.

    """
    first, *rest = dict.fromkeys(names)
    try:
        pages = [_page(sources, first)]
    except UnreachableError as error:
        raise UnreachableError(
            f"The Python package index ({sources.index.named_by}) cannot be reached: {error} "
            "`imgbuild audit --offline` compares with images/evidence.json alone.",
            error.cause,
        ) from error
    pages += in_parallel(lambda name: _page_or_problem(sources, name), rest, _WORKERS)
    if not any(isinstance(page, Project) and page.files for _, page in pages):
        raise UnreachableError(
            f"What {sources.index.named_by} names has none of the {len(pages)} projects that were "
            "asked for. Is it a Python package index (its address mostly ends in /simple)?",
            "no index",
        )
    return Pages(
        {name: page for name, page in pages if isinstance(page, Project)},
        {name: page for name, page in pages if isinstance(page, str)},
    )


def _page(sources: Sources, name: str) -> tuple[str, Project | str]:
    try:
        return name, read_project(sources.client, sources.index, name)
    except UnreachableError:
        raise
    except ReadError as error:
        return name, str(error)


def _page_or_problem(sources: Sources, name: str) -> tuple[str, Project | str]:
    try:
        return _page(sources, name)
    except UnreachableError as error:
        return name, str(error)
