"""The bake definition, as JSON."""

import json
from pathlib import Path

from imgbuild.engine.bake import BakeTarget, bake_definition

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
    assert "SOURCE_DATE_EPOCH" not in json.dumps(forth), "there is no epoch"
