"""Anything that goes into an image changes its input digest; anything else does not."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.downloads.download import Download
from imgbuild.errors import InputError
from imgbuild.matrix.image import Image
from imgbuild.plan.digest import InputDigest, input_digest
from imgbuild.plan.downloads import ImageDownloads
from imgbuild.plan.inputs import BaseInput, BuildInputs, InterpreterInput
from imgbuild.project import Project

INPUTS = BuildInputs(
    {"debian-12": BaseInput("imgbuild/base:debian-12-abc", "sha256:abc", "bootstrapped")},
    {"3.6.15": InterpreterInput(None, "source", "source")},
    Path("/nowhere"),
    "0.13.8",
    downloads=dict.fromkeys(
        ("tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi"), ImageDownloads({}, {})
    ),
)


def _append(path: Path) -> None:
    path.write_text(path.read_text() + "# x\n")


@pytest.fixture
def checkout(tmp_path: Path, project: Project) -> Project:
    """Return a copy of the files that digests are made of."""
    shutil.copytree(project.root / "images", tmp_path / "images")
    shutil.copy(project.matrix, tmp_path / "matrix.yaml")
    return Project(tmp_path)


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


def test_the_same_inputs_give_the_same_digest(image: Image, checkout: Project) -> None:
    assert input_digest(image, INPUTS, checkout) == input_digest(image, INPUTS, checkout)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda p: _append(p.locks / "tf-2.2.0-py3.6-cpu.txt"), "lock"),
        (lambda p: _append(p.locks / "build-py3.6.txt"), "build lock"),
        (lambda p: _append(p.files / "check_compiler.py"), "files"),
        (lambda p: (p.files / "new.py").write_text(""), "files"),
        (lambda p: (p.files / "check_compiler.py").rename(p.files / "renamed.py"), "files"),
    ],
)
def test_a_changed_file_is_named(
    image: Image, checkout: Project, change: Callable[[Project], object], kind: str
) -> None:
    before = input_digest(image, INPUTS, checkout)
    change(checkout)
    after = input_digest(image, INPUTS, checkout)
    assert after.total != before.total
    assert after.changed_since(before.parts) == [kind]


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        (replace(INPUTS, uv_version="0.14.0"), "uv"),
        (replace(INPUTS, bases={"debian-12": BaseInput("x", "sha256:d", "registry")}), "base"),
        (
            replace(INPUTS, interpreters={"3.6.15": InterpreterInput(Path("/p"), "d", "prefix")}),
            "CPython",
        ),
        (replace(INPUTS, standin="for tests"), "stand-in"),
        (
            replace(
                INPUTS,
                downloads={
                    "tf-2.2-cpu-debian": ImageDownloads(
                        {"downloads": (Download("a.tar", "https://x/a.tar", "0" * 64),)}, {}
                    )
                },
            ),
            "downloads",
        ),
    ],
)
def test_a_changed_input_is_named(
    image: Image, checkout: Project, changed: BuildInputs, kind: str
) -> None:
    before = input_digest(image, INPUTS, checkout)
    assert input_digest(image, changed, checkout).changed_since(before.parts) == [kind]


def test_other_images_and_documents_do_not_matter(image: Image, checkout: Project) -> None:
    before = input_digest(image, INPUTS, checkout)
    (checkout.locks / "tf-2.1.0-py3.6-cpu.txt").write_text("changed")
    (checkout.root / "README.md").write_text("changed")
    assert input_digest(image, INPUTS, checkout) == before


def test_secrets_do_not_matter(image: Image, checkout: Project) -> None:
    """Nothing of them may be in the image, so another mirror builds nothing anew."""
    with_ca = replace(INPUTS, secrets={"ca": Path("/ca.pem"), "upstreams": Path("/mirrors.txt")})
    assert input_digest(image, with_ca, checkout) == input_digest(image, INPUTS, checkout)


def test_the_lock_of_an_mpi_is_an_input_of_its_images(
    images: dict[str, Image], checkout: Project
) -> None:
    chosen = [images[f"tf-2.2-cpu-debian{mpi}"] for mpi in ("", "-intelmpi")]
    before = [input_digest(image, INPUTS, checkout) for image in chosen]
    (lock,) = checkout.locks.glob("mpi-*.txt")
    lock.write_text(lock.read_text() + "# read again\n")
    usual, other = [input_digest(image, INPUTS, checkout) for image in chosen]
    assert usual == before[0]
    assert other.changed_since(before[1].parts) == ["MPI lock"]
    lock.unlink()
    with pytest.raises(InputError, match=r"mpi-intelmpi-2021\.8\.0-py3\.6\.txt: No such file"):
        input_digest(chosen[1], INPUTS, checkout)


@pytest.mark.parametrize("how", ["edit", "delete"])
def test_a_dockerfile_that_is_not_the_rendered_one_is_refused(
    image: Image, checkout: Project, how: str
) -> None:
    path = checkout.dockerfiles / image.name / "Dockerfile"
    path.unlink() if how == "delete" else path.write_text("FROM scratch\n")
    with pytest.raises(InputError, match=r"images/dockerfiles/.* Run `imgbuild render`"):
        input_digest(image, INPUTS, checkout)


def test_a_missing_lock_is_refused(image: Image, checkout: Project) -> None:
    (checkout.locks / image.lock_name).unlink()
    with pytest.raises(InputError, match=r"tf-2\.2\.0-py3\.6-cpu\.txt: No such file"):
        input_digest(image, INPUTS, checkout)


def test_what_changed_since_nothing_is_everything() -> None:
    assert InputDigest("t", {"a": "1", "b": "2"}).changed_since({"a": "1"}) == ["b"]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda _: "", "no '# request:' line"),
        (lambda text: text.replace("h5py==2.10.0", "h5py==2.9.0"), "has h5py 2.9.0"),
        (
            lambda text: re.sub(r" \\\n    --hash=\S+", "", text),
            "exact requirement with its sha256",
        ),
    ],
)
def test_a_lock_that_does_not_fit_is_refused(
    image: Image, checkout: Project, damage: Callable[[str], str], expected: str
) -> None:
    lock = checkout.locks / image.lock_name
    lock.write_text(damage(lock.read_text()))
    with pytest.raises(InputError, match=expected):
        input_digest(image, INPUTS, checkout)
