"""What images said, as parts of tags: the same as planned, or another thing, part by part."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image, parts_of, resolve_image, with_other_architectures
from imgbuild.publish.contents import check_contents, read_parts
from imgbuild.suites.container import CONTAINER_LABEL, PROGRAM, ImageContents
from support.fake_engine import FakeEngine

OPEN_MPI = "mpirun (Open MPI) {}\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
INTEL_2021 = "Intel(R) MPI Library for Linux* OS, Version 2021.8 Build 20221129 (id: 339ec755a1)\n"
INTEL_2018 = "Intel(R) MPI Library for Linux* OS, Version 2018 Update 3 Build 20180411 (id: 1)\n"
INTEL = {"2021.8.0": INTEL_2021, "2018.3.222": INTEL_2018}


def contents(image: Image) -> ImageContents:
    """Return what the image says that is as planned, in the words of the real programs."""
    gpu = image.variant == "gpu"
    mpi = image.mpi.version
    mpirun = {"intelmpi": INTEL.get(mpi, ""), "openmpi": OPEN_MPI.format(mpi)}
    distributions = (
        *([("horovod", image.version_of("horovod"))] if image.horovod else []),
        (image.distribution, image.tensorflow),
    )
    return ImageContents(
        distributions,
        gpu,
        gpu,
        image.version_of("python"),
        mpirun.get(image.mpi.flavour, ""),
        (f"{image.version_of('cuda')}.243",) if gpu else (),
        (image.os.distribution, image.os.version),
    )


def test_every_image_as_planned_says_what_its_tags_say(images: dict[str, Image]) -> None:
    for image in with_other_architectures(images.values()):
        assert read_parts(contents(image), image) == parts_of(image)


CPU, INTELMPI, UBUNTU = "tf-2.2-cpu-debian", "tf-2.2-cpu-debian-intelmpi", "tf-2.2-cpu-ubuntu"
GPU, GPU_2_0 = "tf-2.2-gpu-ubuntu", "tf-2.0-gpu-ubuntu"
BOTH = (("tensorflow-cpu", "2.2.0"), ("tensorflow-gpu", "2.2.0"))
TWO = {"tensorflow": "2.2.0 and 2.2.0", "variant": "cpu of tensorflow-cpu and tensorflow-gpu"}
NOTHING = {"tensorflow": "nothing", "minor": "nothing", "variant": "cpu of nothing"}
NO_INFO = "nothing by its build_info.py but gpu by its library"
INTELMPI_READ = {"mpi": "intelmpi2021.8", "flavour": "intelmpi"}
OPENMPI_READ = {"mpi": "openmpi4.1.4", "flavour": "openmpi"}
OTHER_SYSTEM = {"os": "debian13", "stack": "nothing"}
OTHER_TENSORFLOW = {"tensorflow": "2.3.0", "minor": "2.3"}


@pytest.mark.parametrize(
    ("name", "change", "different"),
    [
        (CPU, {"python": "3.7.9", "os": ("debian", "13")}, {"python": "py37", **OTHER_SYSTEM}),
        (CPU, {"python": "3.6.9"}, {}),
        (CPU, {"distributions": (("tensorflow-cpu", "2.3.0"),)}, OTHER_TENSORFLOW),
        (CPU, {"distributions": BOTH}, TWO),
        (CPU, {"distributions": ()}, NOTHING),
        ("tf-2.3-cpu-debian", {"distributions": (("horovod", "0.19.5"),)}, NOTHING),
        (CPU, {"built_with_cuda": True, "kernels": True}, {"variant": "gpu of tensorflow-cpu"}),
        (GPU, {"kernels": False}, {"variant": "gpu by its build_info.py but cpu by its library"}),
        (GPU, {"built_with_cuda": None}, {"variant": NO_INFO}),
        (GPU_2_0, {"cuda": ("10.1.243",)}, {"cuda": "cuda10.1"}),
        (GPU_2_0, {"cuda": ("10.0.130", "9.0.176")}, {"cuda": "cuda10.0 and 9.0"}),
        (GPU_2_0, {"cuda": ()}, {"cuda": ""}),
        (CPU, {"mpirun": OPEN_MPI.format("4.1.40")}, {"mpi": "openmpi4.1.40"}),
        (CPU, {"mpirun": INTEL_2021}, INTELMPI_READ),
        (INTELMPI, {"mpirun": OPEN_MPI.format("4.1.4")}, OPENMPI_READ),
        ("tf-1.10-cpu-ubuntu", {"mpirun": INTEL_2021}, {"mpi": "intelmpi2021.8"}),
        (CPU, {"mpirun": ""}, {"mpi": "nothing", "flavour": "nothing"}),
        (CPU, {"os": ("ubuntu", "18.04")}, {"os": "ubuntu18.04", "stack": "ubuntu"}),
        (UBUNTU, {"os": ("debian", "12")}, {"os": "debian12", "stack": ""}),
        (UBUNTU, {"os": ("ubuntu", "16.04")}, {"os": "ubuntu16.04"}),
    ],
)
def test_each_part_is_read(
    images: dict[str, Image], name: str, change: dict[str, Any], different: dict[str, str]
) -> None:
    image = images[name]
    read = read_parts(replace(contents(image), **change), image)
    planned: dict[str, str] = {str(part): text for part, text in parts_of(image).items()}
    assert read == planned | different


def test_stacks_may_share_an_operating_system(images: dict[str, Image]) -> None:
    image = images[CPU]
    row, stacks = image.row.model_copy(update={"stack": "other"}), image.matrix.stacks
    changed = {
        "images": (*image.matrix.images, row),
        "stacks": {**stacks, "other": stacks["debian"]},
    }
    matrix = image.matrix.model_copy(update=changed)
    for one in (resolve_image(matrix, its, "cpu") for its in (image.row, row)):
        assert read_parts(contents(one), one) == parts_of(one)


ID = "sha256:id"


@pytest.mark.parametrize("error", [CheckFailedError, MachineError, KeyboardInterrupt])
def test_contents_container_is_isolated_and_removed(
    images: dict[str, Image], error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine([StoredImage(ID)])

    def execute(_: object, container: str, command: Sequence[str]) -> str:
        assert engine.running.keys() == {container}
        one = engine.running[container]
        assert (one.image, one.command) == (ID, ("sleep", "infinity"))
        # An engine that lends its driver to every container would show it as the image's own.
        environment = {"NVIDIA_VISIBLE_DEVICES": "void"}
        assert one.options == {"network": "none", "environment": environment}
        assert CONTAINER_LABEL in one.labels
        assert command[-1] == PROGRAM.read_text(encoding="utf-8")
        raise error

    monkeypatch.setattr("imgbuild.suites.container.docker_exec", execute)
    monkeypatch.setattr("imgbuild.suites.container.require_docker_client", lambda: None)
    with pytest.raises(error):
        check_contents(images[CPU], ID, engine)
    assert engine.running == {}


SEVERAL = "python: expected py36, found py37; cuda: expected cuda10.0, found nothing"


@pytest.mark.parametrize(
    ("name", "change", "facts"),
    [
        (GPU_2_0, {"python": "3.7.1", "cuda": ()}, SEVERAL),
        (CPU, {"cuda": ("10.1.243",)}, "cuda: expected nothing, found cuda10.1"),
    ],
)
def test_every_difference_in_a_tag_is_told(
    images: dict[str, Image],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: dict[str, Any],
    facts: str,
) -> None:
    """Also one in a moving tag alone, but none that no tag has."""
    image, scheme = images[name], {"immutable": ("minor", "release")}
    found = replace(contents(image), **change)
    monkeypatch.setattr("imgbuild.publish.contents.read_contents", lambda *_: found)
    for tags in ({}, {**scheme, "moving": (("minor", "python", "cuda"),)}):
        with pytest.raises(CheckFailedError, match=re.escape(f"{name} ({ID})")) as caught:
            check_contents(_tagged(image, tags), ID, FakeEngine())
        assert facts in str(caught.value)
    check_contents(_tagged(image, {**scheme, "moving": ()}), ID, FakeEngine())


def _tagged(image: Image, changes: dict[str, Any]) -> Image:
    """Return the image with another scheme of tags."""
    tags = image.matrix.tags.model_copy(update=changes)
    return replace(image, matrix=image.matrix.model_copy(update={"tags": tags}))
