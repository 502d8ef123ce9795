"""One bake on a graph driver; on the containerd store, what begins shared layers goes ahead."""

import pytest
from test_produce import Bench, bench  # noqa: F401  # the fixture

from imgbuild.build.phases import phases, shared_layers
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.project import Project

DIGEST = InputDigest("sha256:0", {})


@pytest.fixture
def family(images: dict[str, Image]) -> list[PlanItem]:
    return [
        PlanItem(image, DIGEST, Action.BUILD, "")
        for image in images.values()
        if image.stack == "debian"
    ]


@pytest.fixture
def texts(family: list[PlanItem], project: Project) -> list[Dockerfile]:
    return [render_dockerfile(item.image, project.templates) for item in family]


def test_a_graph_driver_has_one_phase(family: list[PlanItem], texts: list[Dockerfile]) -> None:
    assert [*phases(family, texts, containerd_store=False)] == [tuple(family)]


def test_no_two_images_of_a_phase_begin_the_same_layer(
    family: list[PlanItem], texts: list[Dockerfile]
) -> None:
    layers = {
        item.image.name: {*shared_layers(text)} for item, text in zip(family, texts, strict=True)
    }
    there: set[str] = set()
    made = [*phases(family, texts, containerd_store=True)]
    for phase in made:
        begun: set[str] = set()
        for item in phase:
            new = layers[item.image.name] - there
            assert not new & begun
            begun |= new
        there |= begun
    assert sorted(i.image.name for p in made for i in p) == sorted(layers)
    assert 1 < len(made) < 6
    assert len(made[0]) == 1


def test_shared_layers_are_those_below_the_images_own_packages(
    images: dict[str, Image], project: Project
) -> None:
    def layers(name: str) -> tuple[str, ...]:
        return shared_layers(render_dockerfile(images[name], project.templates))

    assert layers("tf-2.2-cpu-debian") == layers("tf-2.2-cpu-debian-intelmpi")
    assert layers("tf-2.2-cpu-debian")[:-1] == layers("tf-2.3-cpu-debian")[:-1]  # TensorFlow's
    assert layers("tf-2.2-cpu-debian")[:3] == layers("tf-1.10-cpu-debian")[:3]
    assert layers("tf-2.2-cpu-debian")[0] != layers("tf-2.2-cpu-ubuntu")[0]


def test_an_empty_plan_has_no_phase_on_the_containerd_store() -> None:
    assert [*phases([], [], containerd_store=True)] == []
