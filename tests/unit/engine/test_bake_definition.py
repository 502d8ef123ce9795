"""The bake definition, as JSON."""

import json
from pathlib import Path

import pytest

from imgbuild.engine.bake import BakeTarget, bake_definition
from imgbuild.errors import InputError

GOLDEN = Path(__file__).parent / "samples" / "bake.json"


def family() -> list[BakeTarget]:
    return [
        BakeTarget(
            name="tf-2.2-cpu-debian",
            context=Path("/checkout/images/files"),
            dockerfile=Path("/checkout/images/dockerfiles/tf-2.2-cpu-debian/Dockerfile"),
            contexts={"python": "/prefix", "base": "docker-image://base:1"},
            args={"PIP_INDEX_URL": "https://index.example/simple"},
            labels={"org.opencontainers.image.title": "costs ${nothing} or %{nothing}"},
            secrets=("id=ca,src=/ca.pem",),
            tags=("app:1",),
            target="final",
        ),
        BakeTarget(
            name="derived-1.0",
            context=Path("/c"),
            dockerfile=Path("/c/Dockerfile"),
            contexts={"base": "target:tf-2.2-cpu-debian"},
            output="type=local,dest=/out",
        ),
    ]


def test_the_definition_is_the_recorded_one() -> None:
    found = json.dumps(bake_definition(family(), epoch=1700000000), indent=2) + "\n"
    assert found == GOLDEN.read_text(encoding="utf-8")


def test_the_order_of_the_targets_does_not_matter() -> None:
    forth, back = (bake_definition(targets) for targets in (family(), family()[::-1]))
    assert json.dumps(forth) == json.dumps(back)


def test_without_an_epoch_there_is_no_argument_for_it() -> None:
    assert "SOURCE_DATE_EPOCH" not in json.dumps(bake_definition(family()))


def test_two_images_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="tf-2_2-cpu-debian"):
        bake_definition([family()[0], family()[0]])
