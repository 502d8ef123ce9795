"""Builds of images for arm64: what they share with those for amd64, and what they do not."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from imgbuild.build.horovod_wheels import wheel_key
from imgbuild.build.targets import image_target, stage_target
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.labels import NAME
from imgbuild.dockerfile.render import committed_dockerfile, dockerfile_path
from imgbuild.engine.build import bake_definition
from imgbuild.inputs.base import Base
from imgbuild.inputs.build_inputs import BuildInputs, prepare_inputs
from imgbuild.inputs.oci_layout import write_layout
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Matrix
from imgbuild.plan.digest import InputReader, input_digest
from imgbuild.plan.plan import Action, PlanItem

BASE = "registry.example.org/debian@sha256:" + "a" * 64
SETTINGS = Settings.model_validate({"base": {"debian-12": {"from": "registry", "image": BASE}}})
AMD64, ARM64 = "linux/amd64", "linux/arm64"


@pytest.fixture
def pair(matrix: Matrix) -> tuple[Image, Image]:
    """Return one image for both architectures."""
    names = ("tf-2.15-cpu-debian", "tf-2.15-cpu-debian-arm64")
    both = (*all_images(matrix), *all_images(matrix, "arm64"))
    own, other = ({image.name: image for image in both}[name] for name in names)
    return own, other


@pytest.fixture
def inputs(pair: tuple[Image, Image], project: Project) -> BuildInputs:
    """Return the inputs of both, whose bases have names of their own."""
    made = prepare_inputs(pair, SETTINGS, project)
    bases = {name: Base(name, f"sha256:{name}", "x") for name in made.bases}
    build_bases = {key: Base(f"for {key[0]}", f"sha256:{key[0]}", "x") for key in made.build_bases}
    return replace(made, bases=bases, build_bases=build_bases)


def test_both_have_one_dockerfile_and_their_own_stages(
    pair: tuple[Image, Image], project: Project
) -> None:
    own, other = pair
    path = dockerfile_path(own, project.dockerfiles)
    assert path == dockerfile_path(other, project.dockerfiles)
    mine, others = (committed_dockerfile(image, project).stages for image in pair)
    same = {name for name in mine if name in others and mine[name].digest == others[name].digest}
    assert {"os", "python", "packages", "packages-numpy", "framework", "mpi"} <= same
    others_own = {"installer", "packages-tensorflow", "compiler", "horovod-build", "final"}
    assert {*mine} - same - {"uv"} == others_own
    assert not [name for name in mine if name.endswith(("-arm64", "-amd64", "build-base"))]
    assert "constraints-arm64.txt" in others["final"].text
    assert f'{NAME}="{other.name}"' in others["final"].text
    assert f'{NAME}="{own.name}"' in mine["final"].text
    constraints = path.with_name("constraints-arm64.txt").read_text("utf-8").splitlines()
    assert "tensorflow-cpu-aws==2.15.1" in constraints
    assert "tensorflow-cpu==2.15.1+imgbuild" in constraints


def test_nothing_that_is_kept_for_one_is_taken_for_the_other(
    pair: tuple[Image, Image], inputs: BuildInputs, project: Project
) -> None:
    own, other = pair
    reader = InputReader(project)
    mine, others = (input_digest(image, inputs, reader) for image in pair)
    assert mine.total != others.total
    assert "platform" not in mine.parts, "else all images for amd64 would be built again"
    assert others.parts["platform"] == ARM64
    assert wheel_key(own, project, inputs) != wheel_key(other, project, inputs)
    assert {*own.tags}.isdisjoint(other.tags)
    assert all(tag.endswith("-arm64") for tag in other.tags)


@pytest.mark.parametrize("machine", [AMD64, ARM64])
def test_the_target_names_its_platform_and_the_base_that_compiles(
    pair: tuple[Image, Image], inputs: BuildInputs, project: Project, machine: str
) -> None:
    own, other = (
        image_target(
            PlanItem(image, input_digest(image, inputs, InputReader(project)), Action.BUILD, ""),
            inputs,
            {},
            project,
            None,
            machine=machine,
        )
        for image in pair
    )
    assert (own.platform, other.platform) == (AMD64, ARM64)
    assert own.contexts["base"].endswith("//debian-12")
    assert other.contexts["base"].endswith("//debian-12-arm64")
    assert "build-base" not in own.contexts
    assert other.contexts["build-base"].endswith(f"//for {machine}")
    (baked,) = bake_definition(other)["target"].values()  # type: ignore[attr-defined]
    assert baked["platforms"] == [ARM64]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("builder", [AMD64, ARM64])
def test_uv_is_supplied_to_a_builder_that_runs_it(
    pair: tuple[Image, Image], inputs: BuildInputs, project: Project, machine: str, builder: str
) -> None:
    """The builder's own processor installs the packages for arm64."""
    inputs = replace(inputs, uv=Path("/uv"))
    runs = {"x86_64": AMD64, "aarch64": ARM64}[machine]
    for image, wanted in zip(pair, (AMD64, builder), strict=True):
        with patch("platform.machine", lambda: machine):
            target = stage_target(image, None, inputs, {}, project, machine=builder)
        assert ("uv" in target.contexts) == (runs == wanted)


def test_a_layout_for_amd64_is_no_base_for_arm64(
    pair: tuple[Image, Image], project: Project, tmp_path: Path
) -> None:
    rootfs = tmp_path / "rootfs.tar"
    rootfs.write_bytes(b"files")
    (layout := tmp_path / "layout").mkdir()
    write_layout(layout, rootfs, name="mine", epoch=0)
    base = {"debian-12": {"from": "layout", "path": str(layout)}}
    settings = Settings.model_validate({"base": base})
    with pytest.raises(InputError, match="OCI layout, which is for amd64"):
        prepare_inputs(pair[1:], settings, project)
