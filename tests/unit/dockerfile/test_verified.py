"""What is remembered of Dockerfiles can be lost, damaged or unwritable, but never wrong."""

import json
import shutil
from pathlib import Path

import pytest

from imgbuild.dockerfile import verified
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.verified import VerifiedDockerfiles
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.project import Project

NAME = "tf-2.2-cpu-debian"


@pytest.fixture
def checkout(project: Project, tmp_path: Path) -> Project:
    root = tmp_path / "checkout"
    shutil.copytree(project.templates, root / "images" / "templates")
    shutil.copytree(project.locks, root / "images" / "locks")
    shutil.copytree(project.dockerfiles / NAME, root / "images" / "dockerfiles" / NAME)
    shutil.copy(project.matrix, root / "matrix.yaml")
    return Project(root)


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of what is rendered from now on."""
    names: list[str] = []

    def spy(image: Image, templates: Path) -> str:
        names.append(image.name)
        return render_dockerfile(image, templates)

    monkeypatch.setattr(verified, "render_dockerfile", spy)
    return names


def _look(checkout: Project, cache: Path | None) -> str:
    """Look at the Dockerfile as one run of imgbuild does."""
    matrix = load_matrix(checkout.matrix)
    image = next(one for one in all_images(matrix) if one.name == NAME)
    look = VerifiedDockerfiles(checkout, matrix, cache)
    text = look.text(image)
    look.remember()
    return text


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_what_was_verified_is_not_rendered_again(
    checkout: Project, rendered: list[str], tmp_path: Path
) -> None:
    first = _look(checkout, tmp_path / "cache")
    assert _look(checkout, tmp_path / "cache") == first
    assert rendered == [NAME]
    assert _look(checkout, None) == first
    assert rendered == [NAME] * 2


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (f"images/dockerfiles/{NAME}/Dockerfile", "FROM base AS os", "FROM other AS os"),
        ("images/templates/partials/os.j2", "FROM base AS os", "FROM other AS os"),
        ("images/templates/macros.j2", "sh /run/apt-install \\", "sh  /run/apt-install \\"),
        ("images/locks/tf-2.2.0-py3.6-cpu.txt", "numpy==1.18.5", "numpy==1.18.6"),
        ("matrix.yaml", "git: 2.39.5", "git: 2.39.6"),
        ("matrix.yaml", "epoch: 2026-11-01T00:00:00Z", "epoch: 2026-11-02T00:00:00Z"),
    ],
)
def test_a_change_is_seen_however_well_it_is_remembered(
    checkout: Project, tmp_path: Path, file: str, old: str, new: str
) -> None:
    _look(checkout, tmp_path / "cache")
    _edit(checkout.root / file, old, new)
    with pytest.raises(InputError, match=r"is not what matrix\.yaml and images/templates say"):
        _look(checkout, tmp_path / "cache")


def test_another_version_of_imgbuild_renders_again(
    checkout: Project, rendered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _look(checkout, tmp_path / "cache")
    monkeypatch.setattr(verified, "version", lambda _: "99")
    _look(checkout, tmp_path / "cache")
    assert rendered == [NAME] * 2


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"key": "other"}', b'{"verified": 1}', b"\xff"]
)
def test_a_damaged_memory_costs_the_rendering(
    checkout: Project, rendered: list[str], tmp_path: Path, damage: bytes
) -> None:
    _look(checkout, tmp_path / "cache")
    (memory,) = (tmp_path / "cache" / "rendered").iterdir()
    memory.write_bytes(damage)
    _look(checkout, tmp_path / "cache")
    assert rendered == [NAME] * 2
    assert json.loads(memory.read_bytes())["verified"]


def test_a_cache_that_cannot_be_written_costs_the_rendering(
    checkout: Project, rendered: list[str], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    _look(checkout, tmp_path / "cache")
    _look(checkout, tmp_path / "cache")
    assert rendered == [NAME] * 2


def test_an_image_that_is_not_of_the_matrix_is_rendered(
    checkout: Project, rendered: list[str], tmp_path: Path
) -> None:
    """Two matrices have images of one name; what is remembered is one matrix's."""
    _look(checkout, tmp_path / "cache")
    _edit(checkout.matrix, "git: 2.39.5", "git: 2.39.6")
    changed = next(i for i in all_images(load_matrix(checkout.matrix)) if i.name == NAME)
    _edit(checkout.matrix, "git: 2.39.6", "git: 2.39.5")
    look = VerifiedDockerfiles(checkout, load_matrix(checkout.matrix), tmp_path / "cache")
    with pytest.raises(InputError, match="is not what"):
        look.text(changed)
    assert rendered == [NAME] * 2
