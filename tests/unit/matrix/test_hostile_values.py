"""No value of the matrix can break out of a Dockerfile line or a shell word."""

import copy
from collections.abc import Collection
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from pydantic import ValidationError

from imgbuild.core.project import Project
from imgbuild.core.yaml_file import Document, Location, read_document
from imgbuild.matrix.model import Matrix

HOSTILE = ["a\nRUN evil", 'x"; evil "', "$(evil)", "`evil`", "a;evil", "a'b", "a b", "a\\b", "\t"]
#: For people only; never in a Dockerfile or a command. Line ends are refused in them too.
PROSE = {"why", "summary", "support", "licence", "says", "otherwise"}


@pytest.fixture(scope="module")
def document(project: Project) -> Document:
    return read_document(project.matrix)


def _leaves(document: Document) -> list[Location]:
    places = (place for place in document.marks if "<key>" not in place)
    return [place for place in places if isinstance(reduce(getitem, place, document.value), str)]


def _refused(document: Document, value: object) -> set[Location]:
    """Return the places that are refused."""
    try:
        Matrix.model_validate(value)
    except ValidationError as error:
        return {_place(document, fault["loc"]) for fault in error.errors()}
    return set()


def _place(document: Document, path: Location) -> Location:
    """Return the place in the document, whose path has no tag of a union."""
    shorter = (path[:index] + path[index + 1 :] for index in range(len(path) - 1))
    return next((place for place in (path, *shorter) if place in document.marks), path)


def _accepted(document: Document, places: Collection[Location], value: str) -> list[Location]:
    """Return the places where the value is not refused: of all at once, then of each left."""

    def refused(places: Collection[Location]) -> set[Location]:
        changed = copy.deepcopy(document.value)
        for *path, last in places:
            reduce(getitem, path, changed)[last] = value
        return _refused(document, changed)

    return [place for place in {*places} - refused(places) if not refused([place])]


def _representatives(document: Document, *, prose: bool) -> Collection[Location]:
    """Return one leaf for each different place in the schema (list indices and names folded)."""
    seen: dict[tuple[str, ...], Location] = {}
    for path in _leaves(document):
        if prose == (
            path[-1] in PROSE
            or "ran_on" in path
            or (path[0], path[-1]) in {("rules", "source"), ("end_of_life", "source")}
        ):
            shape = ("*" if isinstance(p, int) or p[:1].isdigit() else p for p in path)
            seen.setdefault(tuple(shape), path)
    return seen.values()


@pytest.mark.parametrize(
    ("prose", "hostile"), [(True, "a\nb"), *((False, value) for value in HOSTILE)]
)
def test_hostile_values_are_refused_everywhere(
    document: Document, hostile: str, *, prose: bool
) -> None:
    assert not _refused(document, document.value)
    places = _representatives(document, prose=prose)
    assert len(places) > (len(PROSE) if prose else 40)
    assert _accepted(document, places, hostile) == []


@pytest.mark.parametrize("table", ["stacks", "sources", "python", "mpi", "tensorflow", "horovod"])
def test_hostile_names_are_refused(document: Document, table: str) -> None:
    entries: dict[str, Any] = document.value[table]
    for hostile in HOSTILE:
        changed = {**entries, hostile: next(iter(entries.values()))}
        assert _refused(document, {**document.value, table: changed}), hostile


@pytest.mark.parametrize(
    "end", ["a.tar.gz,from=os", "", "a/", "..", ".a", "?", "a?b=c", "a=b,rw", "-a", "a%2c"]
)
def test_the_end_of_an_address_adds_no_option_to_a_mount(document: Document, end: str) -> None:
    """It is a file name: ``--mount=type=bind,from=downloads,source=END``."""
    places = [
        path
        for path in _leaves(document)
        if path[0] in {"sources", "python"} and {"url", "packages"} & {*path}
    ]
    assert {path[0] for path in places} == {"sources", "python"}
    assert _accepted(document, places, f"https://x.example/f/{end}") == []
