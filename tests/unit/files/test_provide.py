"""Metadata that stands for other names of TensorFlow."""

import re
import subprocess
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from imgbuild.core.project import Project
from imgbuild.dockerfile.render import own_dockerfile
from imgbuild.matrix.images import all_images, with_other_architectures
from imgbuild.matrix.model import Matrix
from support.project_copy import ROOT

FILES = ROOT / "images" / "files"


def test_each_image_has_a_program_that_knows_its_tensorflow(
    matrix: Matrix, project: Project
) -> None:
    """`install` finds only names without digits in the lock."""
    known = re.search(
        r"(tensorflow\S*?)==", (FILES / "packages" / "install").read_text(encoding="utf-8")
    )
    assert known
    checked = set()
    for image in with_other_architectures(all_images(matrix)):
        text = own_dockerfile(image, project.templates).stages["packages-tensorflow"].text
        checked.add(image.distribution)
        if re.fullmatch(known[1], image.distribution):
            assert f"sh /run/packages/install {' '.join(image.provided)}" in text
            assert "provide" not in text
        else:
            assert re.search(r"sh /run/packages/install$", text, re.MULTILINE)
            assert f"sh /run/aarch64/provide {' '.join(image.provided)}" in text
    assert {"tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-aarch64"} <= checked


@pytest.mark.parametrize("distribution", ["tensorflow-aarch64", "tensorflow-cpu"])
def test_other_names_are_provided(tmp_path: Path, distribution: str) -> None:
    site = tmp_path / "out/opt/python/lib/python3.8/site-packages"
    site.mkdir(parents=True)
    lock = f"absl-py==1.0 \\\n{distribution}==2.11.1 \\\n    --hash=sha256:{'0' * 64}\n"
    (tmp_path / "packages.txt").write_text(lock, encoding="utf-8")
    script = (FILES / "packages-aarch64" / "provide").read_text(encoding="utf-8")
    for place, own in (
        ("/run/packages/reproducible.sh", FILES / "reproducible.sh"),
        ("/run/packages.txt", tmp_path / "packages.txt"),
        ("/out", tmp_path / "out"),
    ):
        script = script.replace(place, str(own))
    ran = subprocess.run(
        ["sh", "-c", script, "provide", "tensorflow", "tensorflow-cpu"],
        check=False,
        env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": "1700000000"},
    )
    found = {path.name for path in site.iterdir()}
    if distribution != "tensorflow-aarch64":
        assert ran.returncode != 0, "no lock without it gets metadata"
        assert not found
        return
    assert ran.returncode == 0
    assert found == {f"tensorflow{end}-2.11.1+imgbuild.dist-info" for end in ("", "_cpu")}
    for folder in site.iterdir():
        provided = Distribution.at(folder)
        assert provided.version == "2.11.1+imgbuild"
        assert provided.requires == ["tensorflow-aarch64==2.11.1"]
        files = provided.files
        assert files
        assert all(Path(file.locate()).is_file() for file in files)
