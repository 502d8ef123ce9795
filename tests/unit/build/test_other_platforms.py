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
from imgbuild.inputs import build_inputs
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
    """Return one image for both architectures, with the system's Python."""
    return find_pair("tf-2.15-cpu-debian", matrix)


@pytest.fixture
def compiled(matrix: Matrix) -> tuple[Image, Image]:
    """Return one image for both architectures, whose Python is compiled."""
    return find_pair("tf-2.11-cpu-debian", matrix)


def find_pair(name: str, matrix: Matrix) -> tuple[Image, Image]:
    both = {image.name: image for image in (*all_images(matrix), *all_images(matrix, "arm64"))}
    return both[name], both[f"{name}-arm64"]


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


def test_where_python_is_compiled_nothing_runs_on_the_building_machine(
    compiled: tuple[Image, Image], project: Project
) -> None:
    """The building machine has no such Python, so the image's processor does everything."""
    mine, others = (committed_dockerfile(image, project).stages for image in compiled)
    same = {name for name in mine if name in others and mine[name].digest == others[name].digest}
    others_own = {"packages-tensorflow", "horovod-build", "final"}
    assert {*others} - {*mine} == {"final-amd64"}
    assert {*mine} - same - {"uv"} == others_own
    others_text = committed_dockerfile(compiled[1], project).text
    assert "$BUILDPLATFORM" not in others_text
    assert "-mavx" not in others_text
    uv = compiled[0].matrix.uv
    assert uv.arm64
    assert uv.arm64 in others["uv"].text
    assert uv.arm64 not in mine["uv"].text, "else the images for amd64 would change"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_prefix_and_uv_of_this_machine_are_for_its_own_images(
    compiled: tuple[Image, Image],
    project: Project,
    machine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpython = {"3.8.18": {"from": "prefix", "path": str(tmp_path)}}
    base = {"debian-12": {"from": "registry", "image": BASE}}
    settings = Settings.model_validate({"base": base, "cpython": cpython})
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(build_inputs, "digest_prefix", lambda *_: "sha256:prefix")
    inputs = replace(prepare_inputs(compiled, settings, project), uv=Path("/uv"))
    assert not inputs.build_bases
    # Another image of the same build has one.
    own = Base("debian@sha256:abc", "sha256:abc", "registry")
    inputs = replace(inputs, build_bases={(AMD64, "debian-12"): own, (ARM64, "debian-12"): own})
    for image in compiled:
        is_own = image.machine == machine
        target = stage_target(image, None, inputs, {}, project, machine=image.platform)
        assert ("uv" in target.contexts, "cpython" in target.contexts) == (is_own, is_own)
        assert "build-base" not in target.contexts
        sources = [file.name for file in inputs.downloads[image.name].all]
        assert ("Python-3.8.18.tar.xz" in sources) != is_own
        digest = input_digest(image, inputs, InputReader(project))
        assert digest.parts["CPython"] == ("sha256:prefix" if is_own else "source")


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
