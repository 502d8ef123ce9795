"""The tags of the real matrix, as the issue words them, and that they are no input of any image."""

from dataclasses import replace
from pathlib import Path

import pytest

from imgbuild.cli.show_command import described, image_text
from imgbuild.matrix.images import Image, documented_family
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.tags import PlannedTags, immutable_tag, moving_tags, planned_tags
from imgbuild.project import Project

RELEASE = "20261120.1"


@pytest.mark.parametrize(
    ("name", "immutable", "moving"),
    [
        (
            "tf-2.2-gpu-ubuntu",
            "2.2.0-gpu-py36-cuda10.1-openmpi3.1.2-ubuntu18.04-20261120.1",
            ("2.2.0-gpu", "2.2-gpu"),
        ),
        (
            "tf-2.2-cpu-debian",
            "2.2.0-cpu-py36-openmpi4.1.4-debian12-20261120.1",
            ("2.2.0-cpu-debian", "2.2-cpu-debian"),
        ),
        (
            "tf-2.2-cpu-debian-intelmpi",
            "2.2.0-cpu-py36-intelmpi2021.8.0-debian12-20261120.1",
            ("2.2.0-cpu-intelmpi-debian", "2.2-cpu-intelmpi-debian"),
        ),
        (
            "tf-1.10-cpu-ubuntu",
            "1.10.0-cpu-py36-intelmpi2018.3.222-ubuntu16.04-20261120.1",
            ("1.10.0-cpu", "1.10-cpu"),
        ),
        (
            "tf-2.1-gpu-ubuntu-as-documented",
            "2.1.0-gpu-py36-cuda10.0-openmpi3.1.2-ubuntu18.04-as-documented-20261120.1",
            ("2.1.0-gpu-as-documented", "2.1-gpu-as-documented"),
        ),
    ],
)
def test_what_an_image_is_published_under(
    images: dict[str, Image], matrix: Matrix, name: str, immutable: str, moving: tuple[str, ...]
) -> None:
    every = {**images, **{image.name: image for image in documented_family(matrix)}}
    assert immutable_tag(every[name], RELEASE) == immutable
    assert moving_tags(every[name]) == moving
    assert planned_tags(every[name], RELEASE) == PlannedTags(immutable, moving)


def test_another_python_is_another_tag(images: dict[str, Image]) -> None:
    image = images["tf-2.2-cpu-debian"]
    pins = tuple(
        replace(pin, version="3.10.1") if pin.component == "python" else pin for pin in image.pins
    )
    assert "-py310-" in immutable_tag(replace(image, pins=pins), RELEASE)


def test_two_entries_that_say_the_same_are_one_tag(
    images: dict[str, Image], matrix: Matrix
) -> None:
    entry = matrix.tags.moving[0]
    tags = matrix.tags.model_copy(update={"moving": (entry, entry[:2] + entry[3:])})
    changed = matrix.model_copy(update={"tags": tags})
    assert moving_tags(replace(images["tf-2.2-gpu-ubuntu"], matrix=changed)) == ("2.2.0-gpu",)


def test_show_says_them(images: dict[str, Image], project: Project) -> None:
    shown = described(images["tf-2.2-cpu-debian"], project.locks)
    assert shown["published"] == {
        "immutable": "2.2.0-cpu-py36-openmpi4.1.4-debian12-RELEASE",
        "moving": ["2.2.0-cpu-debian", "2.2-cpu-debian"],
    }
    lines = image_text(shown).splitlines()
    assert lines[3:6] == [
        "  is published as",
        "    2.2.0-cpu-py36-openmpi4.1.4-debian12-RELEASE",
        "    and as 2.2.0-cpu-debian, 2.2-cpu-debian, which move",
    ]


def test_show_says_nothing_of_a_ladder_that_is_not_there(
    images: dict[str, Image], project: Project
) -> None:
    shown = described(images["tf-2.2-cpu-debian"], project.locks)
    shown["published"]["moving"] = []
    assert image_text(shown).splitlines()[5].startswith("  Python packages:")


def test_list_says_them(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    from imgbuild.cli.list_command import list_images

    list_images(tf=["2.2"], gpu=True, as_json=True, project=Path(project.root))
    assert '"immutable": "2.2.0-gpu-py36-cuda10.1-openmpi3.1.2-ubuntu18.04-RELEASE"' in (
        capsys.readouterr().out
    )
