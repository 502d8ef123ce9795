"""``--name`` in the commands that select."""

import json

import pytest
import typer
from typer.testing import CliRunner

from imgbuild.cli import commands, options
from imgbuild.errors import InputError
from imgbuild.project import Project

SELECTING = ("list", "show", "build", "test", "push", "size", "fetch", "matrix", "audit")


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer(rich_markup_mode=None)
    commands.register(made)
    return made


def test_the_image_that_is_named(project: Project) -> None:
    (image,) = options.select(
        project, None, False, False, None, None, False, names=["tf-2.2-cpu-debian"]
    )
    assert image.name == "tf-2.2-cpu-debian"


@pytest.mark.parametrize(
    "others",
    [
        (["2.2"], False, False, None, None, False, False),
        (None, True, False, None, None, False, False),
        (None, False, True, None, None, False, False),
        (None, False, False, "debian", None, False, False),
        (None, False, False, None, "openmpi", False, False),
        (None, False, False, None, None, True, False),
        (None, False, False, None, None, False, True),
    ],
)
def test_no_other_selection_beside_it(
    project: Project,
    others: tuple[list[str] | None, bool, bool, str | None, str | None, bool, bool],
) -> None:
    with pytest.raises(InputError, match=r"--name cannot be combined with --tf"):
        options.select(project, *others, names=["tf-2.2-cpu-debian"])


@pytest.mark.parametrize("command", SELECTING)
def test_every_command_that_selects_has_it(app: typer.Typer, command: str) -> None:
    assert "--name IMAGE" in CliRunner().invoke(app, [command, "--help"]).output


def test_list_shows_the_named_images_alone(app: typer.Typer, project: Project) -> None:
    given = ["list", "--name", "tf-2.2-cpu-debian", "--json", "--project", str(project.root)]
    found = json.loads(CliRunner().invoke(app, given).output)
    assert [image["name"] for image in found] == ["tf-2.2-cpu-debian"]
