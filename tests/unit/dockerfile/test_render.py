"""Dockerfiles: the committed ones are the rendered ones, and drift is shown line by line."""

import re
from pathlib import Path

import pytest

from imgbuild.dockerfile.render import find_drift, render_all, render_dockerfile, write_all
from imgbuild.dockerfile.stages import stages_of
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image, documented_family
from imgbuild.project import Project


def test_the_committed_dockerfiles_are_the_rendered_ones(
    images: dict[str, Image], project: Project
) -> None:
    matrix = next(iter(images.values())).matrix
    family = [*images.values(), *documented_family(matrix)]
    rendered = render_all(family, project.templates, project.dockerfiles)
    assert len([path for path in rendered if path.name == "Dockerfile"]) == len(family)
    assert find_drift(rendered, project.dockerfiles) == []


def test_another_mpi_is_said_wherever_people_look(
    images: dict[str, Image], project: Project
) -> None:
    intel = images["tf-2.2-cpu-debian-intelmpi"]
    assert intel.tags == (
        "imgbuild/tensorflow:2.2-cpu-debian-intelmpi",
        "imgbuild/tensorflow:2.2.0-cpu-debian-intelmpi",
    )
    text = render_dockerfile(intel, project.templates)
    assert 'imgbuild.mpi-flavour="intelmpi"' in text
    assert 'imgbuild.licence.mpi="intel-simplified-software-license"' in text
    assert "openmpi" not in text
    usual = render_dockerfile(images["tf-2.2-cpu-debian"], project.templates)
    assert "impi" not in usual
    assert "imgbuild.licence" not in usual


def test_every_image_can_be_a_node_and_holds_no_key(
    images: dict[str, Image], project: Project
) -> None:
    for image in images.values():
        text = render_dockerfile(image, project.templates)
        assert "'openssh-server'" in text, image.name
        # In the very step that installs the package, whose script makes them.
        assert re.search(r"'[^']+' \\\n +&& rm -f /etc/ssh/ssh_host_\*", text), image.name
        assert 'ENTRYPOINT ["/opt/python/bin/dumb-init", "--"]' in text, image.name


def test_only_tensorflow_of_gcc_4_gets_the_old_calling_convention(
    images: dict[str, Image], project: Project
) -> None:
    with_header = [
        image.minor
        for image in images.values()
        if "gcc4_std_function.py" in render_dockerfile(image, project.templates)
    ]
    assert [*dict.fromkeys(with_header)] == ["1.10", "1.11", "1.12", "1.13", "1.14"]


def test_ubuntu_compiles_with_the_compiler_of_the_wheel(
    images: dict[str, Image], project: Project
) -> None:
    for image in images.values():
        text = render_dockerfile(image, project.templates)
        old = image.stack == "ubuntu" and image.wheel.compiler.startswith("4.8")
        assert ("CXX=g++-4.8 " in text) is old, image.name
        assert ("CXX=g++ " in text) is not old, image.name


def test_the_compiler_stays_in_its_stage(images: dict[str, Image], project: Project) -> None:
    text = render_dockerfile(images["tf-2.2-cpu-debian"], project.templates)
    stages = stages_of(text)
    assert [f"{stage.parent} {name}" for name, stage in stages.items()] == [
        "scratch offline",
        "scratch downloads",
        "base os",
        "os binutils",
        "os cpython-compiler",
        "cpython-compiler cpython-build",
        "scratch cpython",
        "os python",
        "python packages-common",
        "python packages-numpy",
        "python packages-scipy",
        "python packages-tensorflow",
        "python packages",
        "os compiler",
        "os mpi",
        "compiler horovod-build",
        "scratch horovod-wheel",
        "python horovod",
        "os final",
    ]
    assert "g++" not in stages["os"].text
    compilers = {"binutils", "compiler", "horovod-build", "cpython-compiler", "cpython-build"}
    copied = {name for name in stages if f"COPY --link --from={name} " in stages["final"].text}
    assert copied
    assert not copied & compilers


def test_images_share_every_stage_that_is_equal(images: dict[str, Image], project: Project) -> None:
    """Equal text is what BuildKit's cache and the shared layers rest on."""
    first, second, intel = (
        stages_of(render_dockerfile(images[name], project.templates))
        for name in ("tf-2.1-cpu-debian", "tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi")
    )
    equal = {name for name, stage in first.items() if second[name] == stage}
    assert {*first} - equal == {"packages-tensorflow", "packages", "horovod-build", "final"}
    equal = {name for name, stage in second.items() if intel.get(name) == stage}
    assert {*second} - equal == {"compiler", "mpi", "horovod-build", "final"}


def test_both_variants_share_the_operating_system_python_mpi_and_compilers(
    images: dict[str, Image], project: Project
) -> None:
    cpu, gpu = (
        stages_of(render_dockerfile(images[name], project.templates))
        for name in ("tf-2.2-cpu-ubuntu", "tf-2.2-gpu-ubuntu")
    )
    for stage in ("os", "binutils", "conda", "python", "compiler", "mpi", "packages-common"):
        assert cpu[stage].instructions == gpu[stage].instructions, stage


def test_the_layers_of_packages_lie_below_the_mpi(
    images: dict[str, Image], project: Project
) -> None:
    """So that images of one TensorFlow share them, whichever MPI they have."""
    for name in ("tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi"):
        final = stages_of(render_dockerfile(images[name], project.templates))["final"].text
        assert final.index("--from=packages ") < final.index("--from=mpi ")


def test_a_gpu_image_has_run_time_libraries_and_no_toolkit(
    images: dict[str, Image], project: Project
) -> None:
    text = render_dockerfile(images["tf-2.1-gpu-ubuntu"], project.templates)
    final = text[text.index("FROM os AS cuda\n") : text.index("FROM os AS conda\n")]
    assert "'libnccl2=2.4.8-1+cuda10.1'" in final
    assert "--hold" in final
    assert "-dev" not in final
    assert "minimal-build" not in final
    assert "FROM cuda AS final" in text
    assert "HOROVOD_GPU_ALLREDUCE=NCCL" in text


def test_every_gpu_image_reduces_with_nccl(images: dict[str, Image], project: Project) -> None:
    for image in images.values():
        text = render_dockerfile(image, project.templates)
        assert ("HOROVOD_GPU_ALLREDUCE=NCCL" in text) is (image.variant == "gpu"), image.name


def test_no_dockerfile_has_a_syntax_line(images: dict[str, Image], project: Project) -> None:
    """It would pull a frontend image: builds would fail where no registry is reached."""
    for image in images.values():
        assert not render_dockerfile(image, project.templates).startswith("# syntax")


def test_the_epoch_is_utc(images: dict[str, Image]) -> None:
    assert epoch_seconds(images["tf-2.2-cpu-debian"]) == 1793491200


def _drifted(tmp_path: Path, committed: str | None) -> list[str]:
    path = tmp_path / "tf-x" / "Dockerfile"
    if committed is not None:
        path.parent.mkdir()
        path.write_text(committed)
    return find_drift({path: "FROM a\nRUN b\n"}, tmp_path)


def test_drift_shows_the_first_differing_line_and_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "tf-x" / "Dockerfile"
    assert _drifted(tmp_path, "FROM a\nRUN c\n") == [
        f"{path}:2: differs\n  committed: RUN c\n  rendered:  RUN b"
    ]


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (None, "is missing"),
        ("FROM a\n", ":2: differs\n  committed: (end of file)"),
        ("FROM a\nRUN b\nRUN c\n", "rendered:  (end of file)"),
        ("FROM a\nRUN b", "differs in line ends only"),
        ("FROM a\r\nRUN b\n", "differs in line ends only"),
    ],
)
def test_every_kind_of_drift_is_found(tmp_path: Path, committed: str | None, expected: str) -> None:
    assert expected in _drifted(tmp_path, committed)[0]


def test_a_dockerfile_of_no_image_is_drift_and_is_deleted(tmp_path: Path) -> None:
    stale = tmp_path / "tf-9" / "Dockerfile"
    stale.parent.mkdir()
    stale.write_text("FROM x\n")
    assert find_drift({}, tmp_path) == [f"{stale}: belongs to no image of the matrix"]
    assert write_all({}, tmp_path) == [stale]
    assert not stale.parent.exists()


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    path = tmp_path / "tf-x" / "Dockerfile"
    assert write_all({path: "FROM a\n"}, tmp_path) == [path]
    assert write_all({path: "FROM a\n"}, tmp_path) == []


def test_a_broken_template_is_named(images: dict[str, Image], tmp_path: Path) -> None:
    (tmp_path / "Dockerfile.j2").write_text("FROM base\n{% if %}")
    with pytest.raises(InputError, match=r"images/templates/Dockerfile\.j2:2"):
        render_dockerfile(images["tf-2.2-cpu-debian"], tmp_path)


def test_an_undefined_variable_is_an_error(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    (tmp_path / "locks").symlink_to(project.locks)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "Dockerfile.j2").write_text("FROM {{ nothing }}")
    with pytest.raises(InputError, match="'nothing' is undefined"):
        render_dockerfile(images["tf-2.2-cpu-debian"], tmp_path / "templates")


def test_a_login_shell_is_told_what_no_shell_misreads(
    images: dict[str, Image], project: Project
) -> None:
    text = render_dockerfile(images["tf-2.3-gpu-ubuntu"], project.templates)
    assert "export NVIDIA_REQUIRE_CUDA='cuda>=10.1'\n" in text
    assert "export NVIDIA_VISIBLE_DEVICES=all\n" in text


def test_targets_that_write_the_same_file_are_not_made_at_once(
    images: dict[str, Image], project: Project
) -> None:
    serial = [
        image.name
        for image in images.values()
        if "MAKEFLAGS=-j1\n" in render_dockerfile(image, project.templates)
    ]
    assert serial == ["tf-2.3-gpu-ubuntu"]
