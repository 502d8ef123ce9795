"""Which stages images have in common, from their real Dockerfiles."""

import pytest

from imgbuild.ci.work import SECONDS, Work, seconds, work_of
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import read_dockerfile
from imgbuild.matrix.images import Image
from imgbuild.project import Project


@pytest.fixture(scope="module")
def works(images: dict[str, Image], project: Project) -> dict[str, Work]:
    return {
        name: work_of(image, render_dockerfile(image, project.templates))
        for name, image in images.items()
    }


def _common(works: dict[str, Work], *names: str) -> set[str]:
    """Return the stages, without their keys, that all of these images have in common."""
    return {key.split()[0] for key in set.intersection(*({*works[n].stages} for n in names))}


def test_one_stack_shares_the_interpreter_from_source(works: dict[str, Work]) -> None:
    common = _common(works, "tf-1.10-cpu-debian", "tf-2.3-cpu-debian")
    assert {"os", "cpython-build", "cpython", "python"} <= common
    assert not {"packages-tensorflow", "horovod-build", "final"} & common


def test_two_mpis_share_packages_and_no_wheel(works: dict[str, Work]) -> None:
    common = _common(works, "tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi")
    assert {"packages", "packages-tensorflow", "python"} <= common
    assert not {"mpi", "horovod-build", "horovod-wheel"} & common


def test_the_variants_share_an_mpi_from_source(works: dict[str, Work]) -> None:
    common = _common(works, "tf-2.2-cpu-ubuntu", "tf-2.2-gpu-ubuntu")
    assert {"mpi", "conda", "compiler"} <= common
    assert "cuda" not in common


def test_releases_share_a_cuda(works: dict[str, Work]) -> None:
    assert "cuda" in _common(works, "tf-2.1-gpu-ubuntu", "tf-2.2-gpu-ubuntu", "tf-2.3-gpu-ubuntu")
    assert "cuda" not in _common(works, "tf-1.10-gpu-ubuntu", "tf-2.3-gpu-ubuntu")


def test_stacks_share_packages_alone(works: dict[str, Work]) -> None:
    common = _common(works, "tf-2.2-cpu-debian", "tf-2.2-cpu-ubuntu")
    assert "packages-tensorflow" in common
    assert {name.split("-")[0] for name in common} == {"packages"}


def test_another_system_is_another_stage_though_the_text_is_the_same(
    images: dict[str, Image],
) -> None:
    text = read_dockerfile("FROM base AS os\nRUN true\nFROM os AS final\nRUN true\n")
    one, other = images["tf-1.10-cpu-ubuntu"], images["tf-2.2-cpu-ubuntu"]
    assert not {*work_of(one, text).stages} & {*work_of(other, text).stages}


def test_what_is_in_common_counts_once(works: dict[str, Work]) -> None:
    one, other = works["tf-1.10-cpu-debian"], works["tf-2.3-cpu-debian"]
    saved = seconds([one]) + seconds([other]) - seconds([one, other])
    assert saved >= SECONDS["cpython-build"]


def test_every_known_stage_exists(works: dict[str, Work]) -> None:
    names = {key.split()[0] for work in works.values() for key in work.stages}
    assert {*SECONDS} - {"mpi-source"} <= names


def test_a_dockerfile_of_other_templates(images: dict[str, Image]) -> None:
    image = images["tf-2.2-cpu-debian"]
    (stage, suites) = work_of(
        image, read_dockerfile("FROM base AS only\nRUN one\nRUN two\n")
    ).stages
    assert stage.startswith("only ")
    assert suites == "suites tf-2.2-cpu-debian"
