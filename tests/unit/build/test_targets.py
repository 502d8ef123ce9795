"""Bake targets: their labels and contexts, shared stages, and the phases of a bake."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench import NEW, Bench

from imgbuild.build.targets import phases, share_packages, shared_layers
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.engine.bake import BakeTarget
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.project import Project


def test_the_target_has_labels_contexts_and_the_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/images")
    bench.build()
    target = next(one for one in bench.targets if one.name == NEW)
    assert target.contexts == {
        "base": "docker-image://debian@sha256:abc",
        "uv": "/uv",
        "cpython": "target:cpython-3.6.15-debian-12",
    }
    (made,) = target.needs
    assert made.contexts == {"base": "docker-image://debian@sha256:abc", "prefix": "/prefix"}
    assert (made.args, made.secrets, made.linked) == ({"PYTHON": "3.6"}, target.secrets, True)
    assert target.secrets == ("id=ca,src=/ca.pem",)
    assert target.args == {"SHA256_X": "f" * 64}
    assert target.labels["imgbuild.input.substitutes"] == "SHA256_X"
    assert "imgbuild.standin" not in target.labels
    assert target.labels["imgbuild.input.cpython"] == "local prefix"
    assert target.labels["org.opencontainers.image.base.digest"] == "sha256:abc"
    source = "https://git.example/me/images"
    assert target.labels["org.opencontainers.image.source"] == source
    assert target.labels["org.opencontainers.image.documentation"] == f"{source}/tree/main/docs"


@pytest.fixture
def stacks() -> dict[str, str]:
    return {
        "tf-1.14-cpu-debian": "debian",
        "tf-2.3-cpu-debian": "debian",
        "tf-1.14-cpu-ubuntu": "ubuntu",
    }


@pytest.fixture
def targets(stacks: dict[str, str], images: dict[str, Image], project: Project) -> list[BakeTarget]:
    return [
        BakeTarget(name, Path("images"), dockerfile_path(images[name], project.dockerfiles))
        for name in stacks
    ]


def test_another_stack_takes_what_the_first_one_makes(
    targets: list[BakeTarget], stacks: dict[str, str]
) -> None:
    shared = {target.name: target for target in share_packages(targets, stacks)}
    assert shared["tf-1.14-cpu-debian"].contexts == {}
    assert shared["tf-2.3-cpu-debian"].contexts == {}  # BuildKit itself sees what is equal
    assert shared["tf-1.14-cpu-ubuntu"].contexts == {
        "packages": "target:tf-1.14-cpu-debian-packages",
        "packages-common": "target:tf-1.14-cpu-debian-packages-common",
        "packages-numpy": "target:tf-1.14-cpu-debian-packages-numpy",
        "packages-tensorflow": "target:tf-1.14-cpu-debian-packages-tensorflow",
    }
    linked = shared["tf-1.14-cpu-debian-packages-numpy"]
    assert (linked.target, linked.linked, linked.output) == ("packages-numpy", True, "")
    assert share_packages(targets[:2], stacks) == targets[:2], "within one stack nothing is linked"


def test_stacks_with_different_pythons_share_no_packages(
    targets: list[BakeTarget], stacks: dict[str, str], tmp_path: Path
) -> None:
    """A layer of a lock has the same name for every Python, and another result."""
    debian, _, ubuntu = targets
    text = ubuntu.dockerfile.read_text("utf-8")
    assert "build-py3.6.txt" in text
    path = tmp_path / "Dockerfile"
    path.write_text(text.replace("build-py3.6.txt", "build-py3.8.txt"), encoding="utf-8")
    targets = [debian, replace(ubuntu, dockerfile=path)]
    assert share_packages(targets, stacks) == targets


@pytest.fixture
def family(images: dict[str, Image]) -> list[PlanItem]:
    return [
        PlanItem(image, InputDigest("sha256:0", {}), Action.BUILD, "")
        for image in images.values()
        if image.stack == "debian"
    ]


def test_no_two_images_of_a_phase_begin_the_same_layer(
    family: list[PlanItem], project: Project
) -> None:
    layers = {item.image.name: {*shared_layers(item.image, project)} for item in family}
    built: set[str] = set()
    made = [*phases(family, project)]
    for phase in made:
        begun: set[str] = set()
        for item in phase:
            new = layers[item.image.name] - built
            assert not new & begun
            begun |= new
        built |= begun
    assert sorted(i.image.name for p in made for i in p) == sorted(layers)
    assert 1 < len(made) < 6
    assert len(made[0]) == 1


def test_shared_layers_are_those_below_the_images_own_packages(
    images: dict[str, Image], project: Project
) -> None:
    def layers(name: str) -> tuple[str, ...]:
        return shared_layers(images[name], project)

    assert layers("tf-2.2-cpu-debian") == layers("tf-2.2-cpu-debian-intelmpi")
    assert layers("tf-2.2-cpu-debian")[:-1] == layers("tf-2.3-cpu-debian")[:-1]  # TensorFlow's
    assert layers("tf-2.2-cpu-debian")[:3] == layers("tf-1.10-cpu-debian")[:3]
    assert layers("tf-2.2-cpu-debian")[0] != layers("tf-2.2-cpu-ubuntu")[0]
