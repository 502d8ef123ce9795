"""Anything that goes into an image changes its input digest; anything else does not."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.errors import InputError
from imgbuild.inputs.build_inputs import BaseInput, BuildInputs, ImageDownloads, InterpreterInput
from imgbuild.inputs.download import Download
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest, input_digest
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


def _changed(before: InputDigest, after: InputDigest) -> list[str]:
    """Return the names of the parts that differ; the digest must say the same."""
    names = {*before.parts, *after.parts}
    found = sorted(n for n in names if before.parts.get(n) != after.parts.get(n))
    assert bool(found) == (before.total != after.total)
    return found


@pytest.mark.parametrize(
    "name",
    ["locks/tf-2.2.0-py3.6-cpu.txt", "locks/build-py3.6.txt", "files/check_compiler.py"],
)
def test_a_changed_file_is_named(image: Image, checkout: Project, name: str) -> None:
    before = input_digest(image, INPUTS, checkout)
    _append(checkout.root / "images" / name)
    kind = {"locks/tf-2.2.0-py3.6-cpu.txt": "lock", "locks/build-py3.6.txt": "build lock"}
    assert _changed(before, input_digest(image, INPUTS, checkout)) == [kind.get(name, name)]


def test_a_folder_is_all_that_is_in_it(image: Image, checkout: Project) -> None:
    before = input_digest(image, INPUTS, checkout)
    (checkout.files / "ssh" / "__pycache__").mkdir()
    (checkout.files / "ssh" / "__pycache__" / "x.pyc").write_text("")
    assert input_digest(image, INPUTS, checkout) == before
    (checkout.files / "ssh" / "more").mkdir()
    (checkout.files / "ssh" / "more" / "new").write_text("")
    assert _changed(before, input_digest(image, INPUTS, checkout)) == ["files/ssh"]


def test_a_file_that_can_be_run_is_another_file(image: Image, checkout: Project) -> None:
    before = input_digest(image, INPUTS, checkout)
    (checkout.files / "network.sh").chmod(0o755)
    assert _changed(before, input_digest(image, INPUTS, checkout)) == ["files/network.sh"]


def test_a_file_that_is_missing_is_refused(image: Image, checkout: Project) -> None:
    (checkout.files / "network.sh").unlink()
    with pytest.raises(InputError, match=r"images/files/network\.sh: a Dockerfile uses it"):
        input_digest(image, INPUTS, checkout)


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
            "download downloads/a.tar",
        ),
    ],
)
def test_a_changed_input_is_named(
    image: Image, checkout: Project, changed: BuildInputs, kind: str
) -> None:
    before = input_digest(image, INPUTS, checkout)
    assert _changed(before, input_digest(image, changed, checkout)) == [kind]


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
    assert _changed(before[1], other) == ["MPI lock"]
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
