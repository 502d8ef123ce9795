"""Bake targets: their labels and contexts, shared stages, and the phases of a bake."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench import INPUTS, NEW, Bench

from imgbuild.build.targets import phases, share_packages, shared_layers
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.engine.bake import BakeTarget
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.project import Project


def test_the_target_has_labels_and_the_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/images")
    bench.build()
    target = next(one for one in bench.targets if one.name == NEW)
    (python,) = target.needs
    assert target.secrets == python.secrets == INPUTS.secrets
    assert target.args == {"SHA256_X": "f" * 64}
    assert target.labels["imgbuild.input.substitutes"] == "SHA256_X"
    assert "imgbuild.standin" not in target.labels
    assert target.labels["imgbuild.input.cpython"] == "local prefix"
    assert target.labels["org.opencontainers.image.description"].startswith("TensorFlow 2.2.3 for")
    source = "https://git.example/me/images"
    assert target.labels["org.opencontainers.image.source"] == source
    assert target.labels["org.opencontainers.image.documentation"] == f"{source}/tree/main/docs"


def test_stacks_with_different_pythons_share_no_packages(
    images: dict[str, Image], project: Project, tmp_path: Path
) -> None:
    """A layer of a lock has the same name for every Python, and another result."""
    stacks = {f"tf-1.14-cpu-{stack}": stack for stack in ("debian", "ubuntu")}
    debian, ubuntu = (
        BakeTarget(name, Path("images"), dockerfile_path(images[name], project.dockerfiles))
        for name in stacks
    )
    assert len(share_packages([debian, ubuntu], stacks)[1].contexts) == 4
    text = ubuntu.dockerfile.read_text("utf-8")
    assert "build-py3.6.txt" in text
    path = tmp_path / "Dockerfile"
    path.write_text(text.replace("build-py3.6.txt", "build-py3.8.txt"), encoding="utf-8")
    targets = [debian, replace(ubuntu, dockerfile=path)]
    assert share_packages(targets, stacks) == targets


def test_no_two_images_of_a_phase_begin_the_same_layer(
    images: dict[str, Image], project: Project
) -> None:
    family = [
        PlanItem(image, InputDigest("sha256:0", {}), Action.BUILD, "")
        for image in images.values()
        if image.stack == "debian"
    ]
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
    assert sorted(item.image.name for phase in made for item in phase) == sorted(layers)
    assert 1 < len(made) < 6
