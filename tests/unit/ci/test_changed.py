"""Which images changed since a revision, in real git repositories with the real checkout.

The images that are expected are found by the matrix, the committed Dockerfiles and the locks alone.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress

import pytest
from git_checkout import GitCheckout, checkout, commit, committed, git

from imgbuild.ci.changed import CheckoutDigests, require_in_history
from imgbuild.errors import InputError
from imgbuild.matrix.load import load_matrix
from imgbuild.plan.digest import InputDigest
from imgbuild.settings import Settings

__all__ = ["checkout", "committed"]


def _other_horovod(checkout: GitCheckout) -> tuple[int, str, str]:
    """Give a row another Horovod that the rules allow; return row, old and new version."""
    path = checkout.project.matrix
    whole, matrix = path.read_text(encoding="utf-8"), load_matrix(path)
    for index, row in enumerate(matrix.images):
        for version in (one for one in matrix.horovod if one != row.horovod.version):
            path.write_text(whole, encoding="utf-8")
            checkout.edit_matrix(lambda all_: all_["images"][index].update(horovod=version))  # noqa: B023
            with suppress(InputError):
                load_matrix(path)
                return index, row.horovod.version, version
    pytest.fail("no row of the matrix can have another Horovod")


def test_one_horovod_pin_is_exactly_the_images_of_its_row(checkout: GitCheckout) -> None:
    """Nothing of the checkout is touched."""

    def state() -> dict[str, tuple[int, int, int]]:
        stats = {path: path.lstat() for path in sorted(checkout.root.rglob("*"))}
        return {str(p): (s.st_mtime_ns, s.st_ino, s.st_size) for p, s in stats.items()}

    index, old, new = _other_horovod(checkout)
    checkout.render()
    row = load_matrix(checkout.project.matrix).images[index]
    before = state()
    uncommitted = checkout.changed()
    assert state() == before
    assert {*uncommitted} == checkout.named(lambda image: image.row == row)
    for reason in uncommitted.values():
        assert reason.startswith(f"changed: pin horovod {old} → {new}; ")
        assert "Dockerfile: stage" in reason
    commit(checkout.root)
    assert checkout.changed("HEAD~1") == uncommitted


def _uv(checkout: GitCheckout) -> None:
    checkout.replace("pyproject.toml", '"uv==', '"uv==9.')
    commit(checkout.root)
    checkout.replace("pyproject.toml", '"uv==9.', '"uv==')


def _base(checkout: GitCheckout) -> None:
    """Change the recipe of a base that this machine has not made."""
    checkout.edit_matrix(lambda all_: all_["operating_systems"]["debian-12"].update(suite="trixie"))


@pytest.mark.parametrize(
    ("change", "system", "reason"),
    [(_uv, "", "changed: uv "), (_base, "debian-12", "base recipe ")],
    ids=["uv", "base"],
)
def test_a_change_is_exactly_the_images_that_it_affects(
    checkout: GitCheckout, change: Callable[[GitCheckout], None], system: str, reason: str
) -> None:
    change(checkout)
    checkout.render()
    found = checkout.changed()
    assert {*found} == checkout.named(lambda image: system in image.os_name)
    assert all(reason in one for one in found.values()), found


def test_settings_for_what_an_older_matrix_lacks_are_no_fault(checkout: GitCheckout) -> None:
    """Settings are this machine's."""
    (checkout.root / "README.md").write_text("Another.\n", encoding="utf-8")
    commit(checkout.root)
    checkout.edit_matrix(
        lambda all_: all_["upstreams"].update(elsewhere={**all_["upstreams"]["debian"]})
    )
    settings = Settings.model_validate({"mirrors": {"elsewhere": "https://mirror.example.org/x"}})
    assert checkout.changes("HEAD~1", settings) == ({}, [])


def test_a_new_image_and_one_that_is_gone(checkout: GitCheckout) -> None:
    whole = checkout.project.matrix.read_text(encoding="utf-8")
    row = checkout.images[0].row
    gone = checkout.named(lambda image: image.row == row)
    checkout.edit_matrix(lambda document: document["images"].pop(0))
    checkout.render()
    reasons, said = checkout.changes()
    assert reasons == {}
    assert {f"{name} is gone from the matrix" for name in gone} <= {*said}
    commit(checkout.root)
    checkout.project.matrix.write_text(whole, encoding="utf-8")
    checkout.render()
    assert checkout.changes() == (dict.fromkeys(gone, "new: not in HEAD"), [])


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
    git(checkout.root, "tag", "000")
    assert checkout.changes("000") == ({}, []), "a revision like any"
    with pytest.raises(InputError, match="0000"):
        checkout.changes("0000")


def test_an_image_whose_base_is_not_made_yet_has_no_digest_to_tell() -> None:
    """The recipe stands in its place: a build will find another one."""
    digests = {"a": InputDigest("sha256:a", {}), "b": InputDigest("sha256:b", {})}
    found = CheckoutDigests({}, digests, {}, frozenset({"b"}))
    assert (found.exact("a"), found.exact("b")) == ("sha256:a", None)


def test_a_fetched_commit_is_not_in_the_history(checkout: GitCheckout) -> None:
    """It may be anybody's, which nobody has reviewed."""
    first = git(checkout.root, "rev-parse", "HEAD")
    git(checkout.root, "checkout", "--quiet", "-b", "review")
    other = commit(checkout.root)
    git(checkout.root, "checkout", "--quiet", "main")
    now = commit(checkout.root, "next")
    for known in (first, now):
        require_in_history(checkout.root, known)
    for reference in (other, "review"):
        with pytest.raises(InputError, match=f"{other} is not in the history"):
            require_in_history(checkout.root, reference)
