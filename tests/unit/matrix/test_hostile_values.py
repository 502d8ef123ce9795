"""No value of the matrix can break out of a Dockerfile line or a shell word."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from imgbuild.matrix.model import Matrix
from imgbuild.project import Project

HOSTILE = ["a\nRUN evil", 'x"; evil "', "$(evil)", "`evil`", "a;evil", "a'b", "a b", "a\\b", "\t"]
#: For people only; never in a Dockerfile or a command. Line ends are refused in them too.
PROSE = {"why", "summary", "support", "licence", "says", "otherwise"}


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path


def _load(project: Project) -> Any:
    return yaml.load(project.matrix.read_text(), Loader=yaml.CBaseLoader)  # noqa: S506 - no tags


def _refused(document: Any) -> set[tuple[Any, ...]]:
    """Return the places that are refused."""
    try:
        Matrix.model_validate(document)
    except ValidationError as error:
        return {fault["loc"] for fault in error.errors()}
    return set()


def _changed(original: Any, places: list[tuple[Any, ...]], value: str) -> Any:
    document = copy.deepcopy(original)
    for *path, last in places:
        inner = document
        for part in path:
            inner = inner[part]
        inner[last] = value
    return document


def _accepted(original: Any, places: list[tuple[Any, ...]], value: str) -> list[tuple[Any, ...]]:
    """Return the places where the value is not refused: of all at once, then of each left."""
    left = {*places} - _refused(_changed(original, places, value))
    return [place for place in left if not _refused(_changed(original, [place], value))]


def _representatives(document: Any, *, prose: bool) -> list[tuple[Any, ...]]:
    """Return one leaf for each different place in the schema (list indices and names folded)."""
    seen: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for path in _leaves(document):
        if prose == (
            path[-1] in PROSE
            or (path[0], path[-1]) in {("rules", "source"), ("end_of_life", "source")}
        ):
            shape = ("*" if isinstance(p, int) or str(p)[:1].isdigit() else str(p) for p in path)
            seen.setdefault(tuple(shape), path)
    return list(seen.values())


@pytest.mark.parametrize(
    ("prose", "hostile"), [(True, "a\nb"), *((False, value) for value in HOSTILE)]
)
def test_hostile_values_are_refused_everywhere(
    project: Project, hostile: str, *, prose: bool
) -> None:
    original = _load(project)
    assert not _refused(original)
    places = _representatives(original, prose=prose)
    assert len(places) > (len(PROSE) if prose else 40)
    assert _accepted(original, places, hostile) == []


@pytest.mark.parametrize("table", ["stacks", "sources", "python", "mpi", "tensorflow", "horovod"])
def test_hostile_names_are_refused(project: Project, table: str) -> None:
    for hostile in HOSTILE:
        document = _load(project)
        document[table][hostile] = next(iter(document[table].values()))
        assert _refused(document), hostile


@pytest.mark.parametrize(
    "end", ["a.tar.gz,from=os", "", "a/", "..", ".a", "?", "a?b=c", "a=b,rw", "-a", "a%2c"]
)
def test_the_end_of_an_address_adds_no_option_to_a_mount(project: Project, end: str) -> None:
    """It is a file name: ``--mount=type=bind,from=downloads,source=END``."""
    original = _load(project)
    places = [
        path
        for path in _leaves(original)
        if path[0] in {"sources", "python"} and {"url", "packages"} & {*path}
    ]
    assert {path[0] for path in places} == {"sources", "python"}
    assert _accepted(original, places, f"https://x.example/f/{end}") == []
