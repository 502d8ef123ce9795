"""``imgbuild base``: bases are made and kept, and nothing else is."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from imgbuild.build import opening
from imgbuild.caches.place import FolderPlace, RegistryPlace
from imgbuild.cli import app, commands
from imgbuild.errors import InputError
from imgbuild.inputs.build_inputs import BaseInput
from imgbuild.project import Project


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what the planner was opened with; no engine is asked."""
    found: list[Any] = []

    @contextmanager
    def opened(_project: object, images: Any, how: Any) -> Iterator[Any]:
        found.extend([tuple(image.name for image in images), how])
        bases = {"debian-12": BaseInput("imgbuild/base:debian-12-1", "sha256:1", "bootstrapped")}
        yield SimpleNamespace(planner=SimpleNamespace(inputs=SimpleNamespace(bases=bases)))

    monkeypatch.setattr(opening, "open_planner", opened)
    return found


def _base(project: Project, *words: str) -> Any:
    if not app.registered_commands:
        commands.register(app)
    return CliRunner().invoke(app, ["base", "--project", str(project.root), *words])


def test_bases_are_made_and_kept(project: Project, asked: list[Any]) -> None:
    caches = ("--cache-from", "example.org/ci/cache", "--cache-to", "/kept")
    result = _base(project, "--tf", "2.2", "--stack", "debian", "--refresh", *caches)
    assert (result.exit_code, result.exception) == (0, None)
    assert result.stdout == "debian-12  bootstrapped  imgbuild/base:debian-12-1\n"
    names, how = asked
    assert names == ("tf-2.2-cpu-debian",)
    assert (how.make, how.refresh) == (True, True)
    assert how.sources == (RegistryPlace("example.org/ci/cache"),)
    assert [str(one) for one in how.targets] == ["/kept"]
    assert isinstance(how.targets[0], FolderPlace)


def test_without_a_word_nothing_is_made_anew(project: Project, asked: list[Any]) -> None:
    assert _base(project, "--all", "--stack", "debian").exit_code == 0
    names, how = asked
    assert len(names) == 14
    assert (how.refresh, how.sources, how.targets) == (False, (), ())


def test_whatever_selects_images_to_publish_selects_their_bases(
    project: Project, asked: list[Any]
) -> None:
    assert _base(project, "--tf", "2.1", "--gpu", "--as-documented").exit_code == 0
    assert asked[0] == ("tf-2.1-gpu-ubuntu-as-documented",)


@pytest.mark.parametrize(
    ("words", "says"),
    [((), "--tf VERSION or --all"), (("--all", "--cache-to", "host/x:1"), "--cache-to")],
)
def test_wrong_input(project: Project, words: tuple[str, ...], says: str) -> None:
    result = _base(project, *words)
    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
