"""Rows whose CPU image is for arm64, too: what they need, and what is told apart."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.matrix.evidence import Evidence
from imgbuild.matrix.images import all_images, with_build_images, with_other_architectures
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rules import find_rule_faults
from support.project_copy import copied

BOTH = "architectures: [amd64, arm64]"
Edit = Callable[[str, str], Path]


@pytest.fixture
def edit(project: Project, tmp_path: Path) -> Edit:
    """Return how to replace a text of the matrix in a copy of the checkout."""
    copy = copied(project, tmp_path / "checkout")

    def change(old: str, new: str) -> Path:
        text = project.matrix.read_text("utf-8")
        assert old in text
        copy.matrix.write_text(text.replace(old, new, 1), "utf-8")
        return copy.matrix

    return change


def test_the_images_for_arm64_are_cpu_images_beside_those_for_amd64(matrix: Matrix) -> None:
    usual, others = all_images(matrix), all_images(matrix, "arm64")
    assert {image.variant for image in others} == {"cpu"}
    versions = {image.tensorflow for image in others}
    assert {"2.12.1", "2.15.1", "2.21.0"} <= versions
    both = with_other_architectures(usual)
    assert {*both} == {*usual, *others}
    assert len({image.name for image in both}) == len(both)
    by_name = {image.name: image for image in both}
    image = by_name["tf-2.15-cpu-debian-arm64"]
    assert (image.distribution, image.machine) == ("tensorflow-cpu-aws", "aarch64")
    assert image.lock_name == "tf-2.15.1-py3.11-cpu-arm64.txt"
    assert image.provided == dict.fromkeys(("tensorflow", "tensorflow-cpu"), "2.15.1+imgbuild")
    assert image.wheel.compiler == "clang-17.0.3"
    assert by_name["tf-2.15-cpu-debian"].wheel.compiler == "clang-17.0.2"


def test_a_machine_for_amd64_needs_its_own_base_too(matrix: Matrix) -> None:
    """It installs and compiles there; a machine for arm64 does so on the image's own.

    An image with a compiled Python is made on its own base alone.
    """
    images = {image.name: image for image in all_images(matrix, "arm64")}

    def bases(name: str, platform: str) -> list[str]:
        return [own.base_name for own in with_build_images([images[name]], platform)]

    assert bases("tf-2.15-cpu-debian-arm64", "linux/arm64") == ["debian-12-arm64"]
    assert bases("tf-2.15-cpu-debian-arm64", "linux/amd64") == ["debian-12-arm64", "debian-12"]
    assert bases("tf-2.11-cpu-debian-arm64", "linux/amd64") == ["debian-12-arm64"]
    usual = all_images(matrix)
    assert with_build_images(usual, "linux/arm64") == usual


def test_wheels_of_one_package_for_two_machines_are_told_apart(matrix: Matrix) -> None:
    """On amd64, "tensorflow" is the package with CUDA; on arm64 it is the only one."""
    name, version, tag = "tensorflow", "2.18.1", "cp311"
    gpu = matrix.evidence.wheel(name, version, tag)
    cpu = matrix.evidence.wheel(name, version, tag, "aarch64")
    assert gpu
    assert cpu
    assert (gpu.cuda_build, cpu.cuda_build) == (True, False)
    assert gpu.capabilities
    assert not cpu.capabilities
    without = {digest: facts for digest, facts in matrix.evidence.facts.items() if facts != cpu}
    assert Evidence(without).wheel(name, version, tag, "aarch64") is None


def test_rules_hold_for_the_wheels_of_arm64(matrix: Matrix) -> None:
    facts = dict(matrix.evidence.facts)
    (wheel,) = (
        one
        for one in facts.values()
        if "tensorflow-2.21.0-cp311" in one.file and "aarch64" in one.file
    )
    newer = wheel.file.replace("manylinux_2_27", "manylinux_2_99")
    facts[wheel.sha256] = wheel.model_copy(update={"file": newer})
    [fault, *_] = find_rule_faults(matrix.with_evidence(Evidence(facts)))
    assert fault.message.startswith("tf-2.21-cpu-debian-arm64, ")
    assert "2.99" in fault.message
    assert not [*find_rule_faults(matrix)]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (BOTH, "architectures: [arm64]", "every row has the architecture amd64"),
        (f"variants: [cpu, gpu], {BOTH}", f"variants: [gpu], {BOTH}", "the variant cpu"),
        (BOTH, "architectures: [amd64, riscv64]", "'amd64' or 'arm64'"),
        (
            ", arm64: tensorflow-cpu-aws}",
            "}",
            "tensorflow.2.12.1.distribution has no arm64 package",
        ),
        (
            ", arm64: 0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d}",
            "}",
            "`arm64` is missing: the sha256 of uv's wheel",
        ),
    ],
)
def test_a_row_that_cannot_be_for_arm64(edit: Edit, old: str, new: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault) as error:
        load_matrix(edit(old, new))
    assert "matrix.yaml:" in str(error.value)
