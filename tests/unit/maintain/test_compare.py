"""Every rule between the matrix and files of the index fires when it should, and only then."""

from dataclasses import replace
from typing import Any

import pytest

from imgbuild.locks.lockfile import Lock
from imgbuild.maintain.compare import Artifact, Contradiction, compare, compare_locks
from imgbuild.maintain.package_index import OfferedFile
from imgbuild.matrix.evidence import WheelFacts

pytest_plugins = ("support.audit_fixtures",)
SHA = "ab" * 32


def _compared(
    artifact: Artifact, facts: WheelFacts, **changes: object
) -> tuple[Contradiction, ...]:
    return compare(replace(artifact, facts=facts.model_copy(update=changes)), {})


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"name": "tensorflow"}, "metadata"),
        ({"version": "2.2.1"}, "metadata"),
        ({"file": "tensorflow_gpu-2.2.0-cp37-cp37m-manylinux2010_x86_64.whl"}, "python"),
        ({"tags": ("cp37-cp37m-linux_x86_64",)}, "python"),
        ({"glibc": "2.38"}, "glibc"),
        ({"libraries": ()}, "gpu"),
        ({"cuda_build": False}, "gpu"),
        ({"libraries": ("libcudart.so.10.1", "libcudnn.so.8")}, "cudnn"),
        ({"libraries": ("libcudart.so.10.1",)}, "cudnn"),
    ],
)
def test_a_gpu_wheel_that_differs_is_named(
    gpu_artifact: Artifact, gpu_facts: WheelFacts, changes: dict[str, Any], kind: str
) -> None:
    assert _compared(gpu_artifact, gpu_facts) == ()
    assert [found.kind for found in _compared(gpu_artifact, gpu_facts, **changes)] == [kind]


def test_a_cpu_wheel_with_cuda_is_named_once_for_all_images(
    cpu_artifact: Artifact, cpu_facts: WheelFacts
) -> None:
    assert _compared(cpu_artifact, cpu_facts) == ()
    for loaded, cuda_build in (("libcudart.so.10.1",), False), ((), True):
        [found] = _compared(cpu_artifact, cpu_facts, libraries=loaded, cuda_build=cuda_build)
        assert found.kind == "cpu"


def test_a_wheel_that_is_not_the_locked_one(cpu_artifact: Artifact, cpu_facts: WheelFacts) -> None:
    name, locked = cpu_artifact.images[0].lock_name, {"tensorflow-cpu": cpu_artifact.version}
    other = Lock("", locked, {"tensorflow-cpu": ("cd" * 32,)})
    right = Lock("", locked, {"tensorflow-cpu": (cpu_facts.sha256,)})
    read = replace(cpu_artifact, facts=cpu_facts)
    for wrong, hashes in ((other, 1), (Lock("", {}, {}), 0)):
        [found] = compare(read, {name: wrong})
        assert (found.kind, found.place) == ("lock", f"images/locks/{name}")
        assert found.change.startswith(f"the lock's {hashes} hashes do not include it")
    assert compare(read, {name: right}) == ()


def test_a_wheel_may_have_several_tags(gpu_artifact: Artifact, gpu_facts: WheelFacts) -> None:
    """The oldest C library that one of them promises is what the wheel runs with (PEP 425)."""
    start = "tensorflow_gpu-2.2.0"
    both = f"{start}-cp36.cp37-cp36m.cp37m-manylinux1_x86_64.manylinux2010_x86_64.whl"
    newer = f"{start}-cp36-cp36m-manylinux2010_x86_64.manylinux_2_35_x86_64.whl"
    assert gpu_artifact.fits(both)
    promised = [gpu_facts.model_copy(update={"file": one}).platform_glibc for one in (both, newer)]
    assert promised == ["2.5", "2.12"]


@pytest.mark.parametrize(
    ("offered", "evidence"),
    [
        (OfferedFile("h5py-1.tar.gz", "u", SHA), []),
        (OfferedFile("h5py-1.tar.gz", "u", SHA, "bad"), ["h5py-1.tar.gz was yanked: bad"]),
        (
            OfferedFile("h5py-1.tar.gz", "u", "cd" * 32),
            [f"the index no longer has 1 of 1 files: sha256 {SHA}"],
        ),
    ],
)
def test_locks_against_the_index(offered: OfferedFile, evidence: list[str]) -> None:
    lock = Lock("", {"h5py": "1"}, {"h5py": (SHA,)})
    found = list(compare_locks({"a.txt": lock}, {"h5py": {offered.name: offered}}))
    assert [one.evidence for one in found] == evidence
    assert {one.place for one in found} <= {"images/locks/a.txt"}
