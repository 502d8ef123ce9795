"""No value of the matrix can break out of a Dockerfile line or a shell word."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
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


def _refused(document: Any) -> bool:
    try:
        Matrix.model_validate(document)
    except ValidationError:
        return True
    return False


def _changed(original: Any, path: tuple[Any, ...], value: str) -> Any:
    document = copy.deepcopy(original)
    inner = document
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return document


def _representatives(document: Any, *, prose: bool) -> list[tuple[Any, ...]]:
    """Return one leaf for each different place in the schema (list indices and names folded)."""
    seen: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for path in _leaves(document):
        if prose == (path[-1] in PROSE or (path[0], path[-1]) == ("rules", "source")):
            shape = ("*" if isinstance(p, int) or str(p)[:1].isdigit() else str(p) for p in path)
            seen.setdefault(tuple(shape), path)
    return list(seen.values())


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_values_are_refused_everywhere(project: Project, hostile: str) -> None:
    original = _load(project)
    assert not _refused(original)
    places = _representatives(original, prose=False)
    assert len(places) > 40
    accepted = [p for p in places if not _refused(_changed(original, p, hostile))]
    assert accepted == []


def test_a_hostile_value_is_refused_with_its_place(
    edited: Callable[..., Path], refusal: Callable[[Path], str]
) -> None:
    said = refusal(edited("openmpi-4.1.4:", "'$(evil)':"))
    assert "matrix.yaml:" in said
    assert "'$(evil)' is not a name" in said


def test_prose_has_no_line_ends(project: Project) -> None:
    original = _load(project)
    places = _representatives(original, prose=True)
    assert places
    accepted = [p for p in places if not _refused(_changed(original, p, "a\nb"))]
    assert accepted == []


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
    refused = [_refused(_changed(original, p, f"https://x.example/f/{end}")) for p in places]
    assert all(refused)
