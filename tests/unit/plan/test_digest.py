"""Anything that goes into an image changes its input digest; anything else does not."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.errors import InputError
from imgbuild.inputs.build_inputs import BaseInput, BuildInputs, ImageDownloads, InterpreterInput
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest, InputReader, input_digest
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


@pytest.fixture
def checkout(tmp_path: Path, project: Project) -> Project:
    """Return a copy of the files that digests are made of."""
    shutil.copytree(project.root / "images", tmp_path / "images")
    shutil.copy(project.matrix, tmp_path / "matrix.yaml")
    return Project(tmp_path)


@pytest.fixture
def image(images: dict[str, Image]) -> Image:
    return images["tf-2.2-cpu-debian"]


def _digest(image: Image, checkout: Project, inputs: BuildInputs = INPUTS) -> InputDigest:
    return input_digest(image, inputs, InputReader(checkout))


def _changed(before: InputDigest, after: InputDigest) -> list[str]:
    """Return the names of the parts that differ; the digest must say the same."""
    names = {*before.parts, *after.parts}
    found = sorted(n for n in names if before.parts.get(n) != after.parts.get(n))
    assert bool(found) == (before.total != after.total)
    return found


def test_files_are_their_content_and_their_execute_bit(image: Image, checkout: Project) -> None:
    before = _digest(image, checkout)
    (checkout.files / "ssh" / "__pycache__").mkdir()
    (checkout.files / "ssh" / "__pycache__" / "x.pyc").write_text("")
    assert _digest(image, checkout) == before
    (checkout.files / "ssh" / "more").mkdir()
    (checkout.files / "ssh" / "more" / "new").write_text("")
    file = checkout.files / "network.sh"
    file.chmod(0o755)
    changed = _changed(before, _digest(image, checkout))
    assert changed == ["files/network.sh", "files/ssh"]
    file.unlink()
    with pytest.raises(InputError, match=r"images/files/network\.sh: a Dockerfile uses it"):
        _digest(image, checkout)


def test_a_stand_in_is_an_input_and_a_secret_is_none(image: Image, checkout: Project) -> None:
    """Nothing of a secret may be in the image, so another mirror builds nothing anew."""
    before = _digest(image, checkout)
    standin = replace(INPUTS, standin="for tests")
    assert _changed(before, _digest(image, checkout, standin)) == ["stand-in"]
    with_ca = replace(INPUTS, secrets={"ca": Path("/ca.pem"), "upstreams": Path("/mirrors.txt")})
    assert _digest(image, checkout, with_ca) == before


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
        _digest(image, checkout)
    lock.unlink()
    with pytest.raises(InputError, match=f"{re.escape(lock.name)}: No such file"):
        _digest(image, checkout)
