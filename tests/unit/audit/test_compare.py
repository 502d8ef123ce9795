"""Every rule between the matrix and files of the index fires when it should, and only then."""

from typing import Any

import pytest

from imgbuild.audit.audit import HOROVOD, needs_of
from imgbuild.audit.compare import (
    Contradiction,
    Facts,
    Need,
    OfferedFile,
    WheelFacts,
    compare,
    compare_locks,
)
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.matrix.images import Image

pytest_plugins = ("audit_fixtures",)
SHA = "ab" * 32


def _compared(need: Need, facts: WheelFacts, **changes: object) -> tuple[Contradiction, ...]:
    return compare(need, facts.model_copy(update=changes), {})


def test_a_wheel_that_agrees_has_no_contradiction(
    gpu_need: Need, gpu_facts: WheelFacts, cpu_need: Need, cpu_facts: WheelFacts
) -> None:
    assert _compared(gpu_need, gpu_facts) == _compared(cpu_need, cpu_facts) == ()


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"name": "tensorflow"}, ["metadata"]),
        ({"version": "2.2.1"}, ["metadata"]),
        ({"file": "tensorflow_gpu-2.2.0-cp37-cp37m-manylinux2010_x86_64.whl"}, ["python"]),
        ({"tags": ("cp37-cp37m-linux_x86_64",)}, ["python"]),
        ({"file": "tensorflow_gpu-2.2.0-cp36-cp36m-manylinux1_x86_64.whl"}, ["platform"]),
        (
            {"file": "tensorflow_gpu-2.2.0-cp36-cp36m-manylinux_2_35_x86_64.whl"},
            ["glibc", "platform"],
        ),
        ({"glibc": "2.38"}, ["glibc"]),
        ({"compiler": "4.8.5"}, ["compiler"]),
        ({"libraries": ()}, ["gpu"]),
        ({"cuda_build": False}, ["gpu"]),
        ({"libraries": ("libcudart.so.10.0", "libcudnn.so.7")}, ["cuda", "cuda"]),
        ({"libraries": ("libcudart.so.10.1", "libcudnn.so.8")}, ["cudnn", "cudnn"]),
        ({"libraries": ("libcudart.so.10.1",)}, ["cudnn", "cudnn"]),
        ({"capabilities": ("sm_35", "compute_70")}, ["capabilities", "capabilities"]),
    ],
)
def test_a_gpu_wheel_that_differs_is_named(
    gpu_need: Need, gpu_facts: WheelFacts, changes: dict[str, Any], kinds: list[str]
) -> None:
    assert [found.kind for found in _compared(gpu_need, gpu_facts, **changes)] == kinds


@pytest.mark.parametrize("changes", [{"libraries": ("libcudart.so.10.1",)}, {"cuda_build": True}])
def test_a_cpu_wheel_with_cuda_is_named_once_for_all_images(
    cpu_need: Need, cpu_facts: WheelFacts, changes: dict[str, Any]
) -> None:
    assert [found.kind for found in _compared(cpu_need, cpu_facts, **changes)] == ["cpu"]


def test_a_wheel_that_is_not_the_locked_one(cpu_need: Need, cpu_facts: WheelFacts) -> None:
    name, locked = cpu_need.images[0].lock_name, {"tensorflow-cpu": cpu_need.version}
    other = Lock("", locked, {"tensorflow-cpu": ("cd" * 32,)})
    right = Lock("", locked, {"tensorflow-cpu": (cpu_facts.sha256,)})
    for wrong, hashes in ((other, 1), (Lock("", {}, {}), 0)):
        [found] = compare(cpu_need, cpu_facts, {name: wrong})
        assert (found.kind, found.place) == ("lock", f"images/locks/{name}")
        assert found.change.startswith(f"none of the lock's {hashes} hashes is that")
    assert compare(cpu_need, cpu_facts, {name: right}) == ()


def test_a_wheel_may_have_several_tags(gpu_need: Need, gpu_facts: WheelFacts) -> None:
    """The oldest C library that one of them promises is what the wheel runs with (PEP 425)."""
    start = "tensorflow_gpu-2.2.0"
    both = f"{start}-cp36.cp37-cp36m.cp37m-manylinux1_x86_64.manylinux2010_x86_64.whl"
    newer = f"{start}-cp36-cp36m-manylinux2010_x86_64.manylinux_2_35_x86_64.whl"
    tags = ("cp37-cp37m-manylinux2010_x86_64", *gpu_facts.tags)
    assert gpu_need.fits(both)
    assert _compared(gpu_need, gpu_facts, file=newer, tags=tags) == ()
    [found] = _compared(gpu_need, gpu_facts, file=both)
    assert (found.kind, found.evidence) == ("platform", "its platform tag promises glibc 2.5")


def test_places_are_where_the_pin_is_written(gpu_need: Need, gpu_facts: WheelFacts) -> None:
    index = gpu_need.images[0].matrix.images
    row = next(i for i, r in enumerate(index) if (r.tensorflow, r.stack) == ("2.2.0", "ubuntu"))
    wrong = _compared(gpu_need, gpu_facts, libraries=("libcudart.so.10.0", "libcudnn.so.8"))
    assert [found.place for found in wrong] == [
        ("images", row, "cuda"),
        ("tensorflow", "2.2.0", "gpu", "cuda"),
        ("stacks", "ubuntu", "pins", "cudnn"),
        ("tensorflow", "2.2.0", "gpu", "cudnn"),
    ]
    assert wrong[0].evidence == "the version of libcudart that it loads is 10.0"
    assert wrong[0].change == "write 10.0 in place of 10.1"


def test_from_cuda_11_on_libcudart_has_the_name_of_the_first_minor_release(
    images: dict[str, Image], gpu_facts: WheelFacts
) -> None:
    need = needs_of([images["tf-2.12-gpu-debian"]])[0]
    found = {"libraries": ("libcudart.so.11.0", "libcudnn.so.8"), "name": "tensorflow"}
    other = {**found, "libraries": ("libcudart.so.12", "libcudnn.so.8")}
    kinds = [[c.kind for c in _compared(need, gpu_facts, **one)] for one in (found, other)]
    assert [kind.count("cuda") for kind in kinds] == [0, 2]


def test_horovod_is_the_one_of_the_matrix(images: dict[str, Image]) -> None:
    need = needs_of([images["tf-2.2-gpu-ubuntu"]])[1]
    right = need.images[0].horovod.sha256
    file = f"horovod-{need.version}.tar.gz"
    facts = Facts(sha256=right, file=file, size=9, name=HOROVOD, version=need.version)
    assert compare(need, facts, {}) == ()
    [found] = compare(need, facts.model_copy(update={"sha256": SHA}), {})
    assert (found.kind, found.place) == ("sha256", ("horovod", need.version, "sha256"))


@pytest.mark.parametrize(
    ("offered", "evidence"),
    [
        (OfferedFile("h5py-1.tar.gz", "u", SHA), []),
        (OfferedFile("h5py-1.tar.gz", "u", SHA, "bad"), ["h5py-1.tar.gz was withdrawn: bad"]),
        (
            OfferedFile("h5py-1.tar.gz", "u", "cd" * 32),
            [f"1 of 1 files are no longer offered: sha256 {SHA}"],
        ),
    ],
)
def test_locks_against_the_index(offered: OfferedFile, evidence: list[str]) -> None:
    lock = Lock("", {"h5py": "1"}, {"h5py": (SHA,)})
    found = list(compare_locks({"a.txt": lock}, {"h5py": {offered.name: offered}}))
    assert [one.evidence for one in found] == evidence
    assert {one.place for one in found} <= {"images/locks/a.txt"}
