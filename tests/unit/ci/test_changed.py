"""Which images changed since a revision, in real git repositories with the real checkout.

The images that are expected are found by the matrix, the committed Dockerfiles and the locks alone.
"""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from git_checkout import GitCheckout, commit, git, git_checkout

from imgbuild.errors import InputError
from imgbuild.matrix.load import load_matrix
from imgbuild.project import Project
from imgbuild.settings import Settings


@pytest.fixture(scope="module")
def committed(project: Project, tmp_path_factory: pytest.TempPathFactory) -> GitCheckout:
    return git_checkout(project, tmp_path_factory.mktemp("committed") / "checkout", Settings())


@pytest.fixture
def checkout(committed: GitCheckout, tmp_path: Path) -> Iterator[GitCheckout]:
    with committed.copy(tmp_path) as made:
        yield made


def _set_horovod(index: int, version: str, document: dict[str, Any]) -> None:
    document["images"][index]["horovod"] = version


def _other_horovod(checkout: GitCheckout) -> tuple[int, str, str]:
    """Give a row another Horovod that the rules allow; return row, old and new version."""
    matrix = load_matrix(checkout.project.matrix)
    whole = checkout.project.matrix.read_text(encoding="utf-8")
    for index, row in enumerate(matrix.images):
        for version in (one for one in matrix.horovod if one != row.horovod.version):
            checkout.edit_matrix(partial(_set_horovod, index, version))
            try:
                load_matrix(checkout.project.matrix)
            except InputError:
                checkout.project.matrix.write_text(whole, encoding="utf-8")
                continue
            return index, row.horovod.version, version
    pytest.fail("no row of the matrix can have another Horovod")


def test_nothing_changed(checkout: GitCheckout) -> None:
    found = checkout.changes()
    assert (found.reasons, found.gone, found.notes) == ({}, (), ())


def test_one_horovod_pin_is_exactly_the_images_of_its_row(checkout: GitCheckout) -> None:
    index, old, new = _other_horovod(checkout)
    checkout.render()
    row = load_matrix(checkout.project.matrix).images[index]
    uncommitted = checkout.changed()
    assert {*uncommitted} == checkout.named(lambda image: image.row == row)
    for reason in uncommitted.values():
        assert reason.startswith(f"changed: pin horovod {old} → {new}; Dockerfile: stage")
    commit(checkout.root)
    assert checkout.changed() == {}
    assert checkout.changed("HEAD~1") == uncommitted


def test_one_partial_of_one_mpi(checkout: GitCheckout) -> None:
    checkout.replace("images/templates/partials/mpi-index.j2", "set -eu\n", "set -eux\n")
    checkout.render()
    found = checkout.changed()
    assert {*found} == checkout.named(lambda image: image.mpi.origin == "index")
    assert {*found.values()} == {"changed: Dockerfile: stage mpi"}


def test_a_lock_is_its_images(checkout: GitCheckout) -> None:
    name = "mpi-intelmpi-2021.8.0-py3.6.txt"
    path = checkout.project.locks / name
    path.write_text(path.read_text(encoding="utf-8") + "# seen\n", encoding="utf-8")
    assert {*checkout.changed()} == checkout.named(lambda image: image.mpi_lock_name == name)


def test_a_file_of_the_build_context_by_its_content_and_mode(checkout: GitCheckout) -> None:
    path = checkout.project.files / "check_compiler.py"
    mounting = checkout.named(
        lambda image: (
            path.name
            in (checkout.project.dockerfiles / image.name / "Dockerfile").read_text(
                encoding="utf-8"
            )
        )
    )
    path.chmod(path.stat().st_mode ^ 0o111)
    assert {*checkout.changed()} == mounting


def test_what_is_no_input_changes_nothing(checkout: GitCheckout) -> None:
    (checkout.root / "README.md").write_text("Another.\n", encoding="utf-8")
    (checkout.root / "images" / "evidence.json").write_text("{}\n", encoding="utf-8")
    (checkout.root / "tests" / "image").mkdir(parents=True)
    (checkout.root / "tests" / "image" / "test_new.py").write_text("", encoding="utf-8")
    checkout.replace("images/templates/Dockerfile.j2", "#\n", "# Another comment.\n#\n")
    checkout.render()
    commit(checkout.root)
    assert checkout.changed("HEAD~1") == {}


def test_a_new_image_and_one_that_is_gone(checkout: GitCheckout) -> None:
    whole = checkout.project.matrix.read_text(encoding="utf-8")
    gone = checkout.images[0].row

    def without(document: dict[str, Any]) -> None:
        del document["images"][0]

    checkout.edit_matrix(without)
    checkout.render()
    names = {f"{image.name}" for image in checkout.images}
    found = checkout.changes()
    assert found.reasons == {}
    assert found.gone
    assert not {*found.gone} & names
    commit(checkout.root)
    checkout.project.matrix.write_text(whole, encoding="utf-8")
    checkout.render()
    found = checkout.changes()
    assert {*found.reasons} == checkout.named(lambda image: image.row == gone)
    assert {*found.reasons.values()} == {"new: not in HEAD"}
    assert found.gone == ()


@pytest.mark.parametrize("damage", ["images: [", "no: matrix\n", None])
def test_a_matrix_that_cannot_be_read_is_every_image(
    checkout: GitCheckout, damage: str | None
) -> None:
    whole = checkout.project.matrix.read_text(encoding="utf-8")
    if damage is None:
        checkout.project.matrix.unlink()
    else:
        checkout.project.matrix.write_text(damage, encoding="utf-8")
    commit(checkout.root)
    checkout.project.matrix.write_text(whole, encoding="utf-8")
    found = checkout.changes()
    assert {*found.reasons} == checkout.named(lambda _: True)
    (told,) = found.notes
    assert told.startswith("--changed-since HEAD: every image counts as changed: this imgbuild can")
    assert "matrix.yaml" in told
    assert "revision-" not in told  # the temporary folder is nobody's business
    assert "\n" not in told


def test_a_dockerfile_that_was_missing_is_one_image(checkout: GitCheckout) -> None:
    image = checkout.images[0]
    folder = checkout.project.dockerfiles / image.name
    shutil.move(folder, checkout.root / "aside")
    commit(checkout.root)
    shutil.move(checkout.root / "aside", folder)
    assert checkout.changed() == {
        image.name: "it cannot be compared with HEAD: it had no Dockerfile that can be read"
    }


def test_committed_dockerfiles_of_the_revision_count_as_they_are(checkout: GitCheckout) -> None:
    """Imgbuild's own rendering may have been another one then: it is not asked."""
    checkout.replace("images/templates/Dockerfile.j2", "#\n", "{{ gone.with.the.old.code }}#\n")
    commit(checkout.root)
    git(checkout.root, "checkout", "--quiet", "HEAD~1", "--", "images/templates")
    assert checkout.changed() == {}


def test_no_revision_before_the_first_is_every_image(checkout: GitCheckout) -> None:
    found = checkout.changes("0" * 40)
    assert {*found.reasons} == checkout.named(lambda _: True)
    assert "no revision before" in found.notes[0]


def test_another_uv_is_another_input_of_each(checkout: GitCheckout) -> None:
    checkout.replace("pyproject.toml", '"uv==', '"uv==9.')
    commit(checkout.root)
    checkout.replace("pyproject.toml", '"uv==9.', '"uv==')
    found = checkout.changed()
    assert {*found} == checkout.named(lambda _: True)
    assert all(reason.startswith("changed: uv ") for reason in found.values())


def test_a_base_that_is_not_made_stands_for_its_recipe(checkout: GitCheckout) -> None:
    """A machine that has made none lists the images of a changed recipe, and no other."""

    def another(document: dict[str, Any]) -> None:
        document["operating_systems"]["debian-12"]["suite"] = "trixie"

    checkout.edit_matrix(another)
    checkout.render()
    found = checkout.changed()
    assert {*found} == checkout.named(lambda image: image.os_name == "debian-12")
    assert all("base recipe " in reason for reason in found.values())


def test_settings_for_what_the_revision_did_not_know(checkout: GitCheckout) -> None:
    """They are this machine's: that an older matrix has no such mirror is no fault."""

    def renamed(document: dict[str, Any]) -> None:
        document["upstreams"]["elsewhere"] = {**document["upstreams"]["debian"]}

    checkout.edit_matrix(renamed)
    settings = Settings.model_validate({"mirrors": {"elsewhere": "https://mirror.example.org/x"}})
    assert checkout.changes(settings=settings).notes == ()


def test_nothing_of_the_checkout_is_touched(checkout: GitCheckout) -> None:
    _other_horovod(checkout)
    checkout.render()

    def state() -> dict[str, tuple[int, int, int]]:
        stats = {path: path.lstat() for path in sorted(checkout.root.rglob("*"))}
        return {str(p): (s.st_mtime_ns, s.st_ino, s.st_size) for p, s in stats.items()}

    before = state()
    assert checkout.changed()
    assert state() == before
    assert "matrix.yaml" in git(checkout.root, "status", "--porcelain")
