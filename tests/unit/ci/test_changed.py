"""Which images changed since a revision, in real git repositories with the real checkout.

The images that are expected are found by the matrix, the committed Dockerfiles and the locks alone.
"""

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from git_checkout import GitCheckout, checkout, commit, committed, git

from imgbuild.ci.changed import CheckoutDigests
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.matrix.load import load_matrix
from imgbuild.plan.digest import InputDigest
from imgbuild.settings import Settings

__all__ = ["checkout", "committed"]

LOCK = "mpi-intelmpi-2021.8.0-py3.6.txt"


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


def _uv(checkout: GitCheckout) -> None:
    checkout.replace("pyproject.toml", '"uv==', '"uv==9.')
    commit(checkout.root)
    checkout.replace("pyproject.toml", '"uv==9.', '"uv==')


def _base(checkout: GitCheckout) -> None:
    """Change the recipe of a base that this machine has not made."""
    checkout.edit_matrix(lambda all_: all_["operating_systems"]["debian-12"].update(suite="trixie"))


@pytest.mark.parametrize(
    ("change", "affected", "reason"),
    [
        (_uv, lambda _: True, "changed: uv "),
        (_base, lambda image: image.os_name == "debian-12", "base recipe "),
    ],
)
def test_a_change_is_exactly_the_images_that_it_affects(
    checkout: GitCheckout,
    change: Callable[[GitCheckout], None],
    affected: Callable[[Image], bool],
    reason: str,
) -> None:
    change(checkout)
    checkout.render()
    found = checkout.changed()
    assert {*found} == checkout.named(affected)
    assert all(reason in one for one in found.values()), found


def test_what_is_no_input_changes_nothing(checkout: GitCheckout) -> None:
    (checkout.root / "README.md").write_text("Another.\n", encoding="utf-8")
    checkout.replace("images/evidence.json", '"read": "20', '"read": "19')
    (checkout.root / "tests" / "image" / "test_new.py").write_text("", encoding="utf-8")
    checkout.replace("images/templates/Dockerfile.j2", "#\n", "# Another comment.\n#\n")
    checkout.render()
    commit(checkout.root)
    # Settings are this machine's: that an older matrix has no such mirror is no fault.
    checkout.edit_matrix(
        lambda all_: all_["upstreams"].update(elsewhere={**all_["upstreams"]["debian"]})
    )
    settings = Settings.model_validate({"mirrors": {"elsewhere": "https://mirror.example.org/x"}})
    assert checkout.changes("HEAD~1", settings) == ({}, [])


def test_a_new_image_and_one_that_is_gone(checkout: GitCheckout) -> None:
    whole = checkout.project.matrix.read_text(encoding="utf-8")
    gone = checkout.images[0].row
    checkout.edit_matrix(lambda document: document["images"].pop(0))
    checkout.render()
    left = {image.name for image in checkout.images}
    reasons, said = checkout.changes()
    assert reasons == {}
    assert said
    names = {line.removesuffix(" is gone from the matrix") for line in said}
    assert not names & {*said, *left}
    commit(checkout.root)
    checkout.project.matrix.write_text(whole, encoding="utf-8")
    checkout.render()
    reasons, said = checkout.changes()
    assert {*reasons} == checkout.named(lambda image: image.row == gone)
    assert {*reasons.values()} == {"new: not in HEAD"}
    assert said == []


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
    reasons, (told,) = checkout.changes()
    assert {*reasons} == checkout.named(lambda _: True)
    assert told.startswith("--changed-since HEAD: ")
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


@pytest.mark.parametrize("length", [40, 64])
def test_no_revision_before_the_first_is_every_image(checkout: GitCheckout, length: int) -> None:
    """A digest of zeros, by sha1 or sha256, is what CI names before a branch's first revision."""
    reasons, (said,) = checkout.changes("0" * length)
    assert {*reasons} == checkout.named(lambda _: True)
    assert said.startswith(f"--changed-since {'0' * length}: ")


def test_another_name_of_zeros_is_a_revision_like_any(checkout: GitCheckout) -> None:
    git(checkout.root, "tag", "000")
    assert checkout.changes("000") == ({}, [])
    for none in ("0000", "0" * 39 + "1"):
        with pytest.raises(InputError, match=none):
            checkout.changes(none)


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


def test_an_image_whose_base_is_not_made_yet_has_no_digest_to_tell() -> None:
    """The recipe stands in its place: a build will find another one."""
    digests = {"a": InputDigest("sha256:a", {}), "b": InputDigest("sha256:b", {})}
    found = CheckoutDigests({}, digests, {}, frozenset({"b"}))
    assert (found.exact("a"), found.exact("b")) == ("sha256:a", None)
