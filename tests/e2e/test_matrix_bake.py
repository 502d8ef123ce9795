"""``imgbuild matrix --format bake`` is what the real bake reads. Nothing is built."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from imgbuild.engine.buildx import find_buildx
from imgbuild.settings import load_settings

if TYPE_CHECKING:
    from conftest import Checkout


def _printed(checkout: Checkout, definition: str, *targets: str) -> dict[str, Any]:
    """Return the definition as bake understands it."""
    buildx = find_buildx(load_settings(checkout.project.settings).engine)
    result = subprocess.run(
        [str(buildx.path), "bake", "--print", "--file", "-", *targets],
        input=definition,
        env={**os.environ, "DOCKER_HOST": checkout.host or os.environ.get("DOCKER_HOST", "")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    printed: dict[str, Any] = json.loads(result.stdout)
    return printed


def _definition(checkout: Checkout, *options: str) -> str:
    result = checkout.run("matrix", "--format", "bake", *options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_bake_reads_the_whole_family(checkout: Checkout) -> None:
    definition = _definition(checkout, "--shards", "4")
    printed = _printed(checkout, definition)
    assert len(printed["group"]["default"]["targets"]) == 34
    assert printed["target"]["tf-2_2-cpu-debian"]["context"] == str(checkout.root / "images")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_bake_reads_a_shard(checkout: Checkout, number: int) -> None:
    """A shard's group is its images; stages that another stack makes come along as they need be."""
    group = f"shard-{number}-of-4"
    definition = _definition(checkout, "--shards", "4")
    wanted = {*json.loads(definition)["group"][group]["targets"]}
    printed = _printed(checkout, definition, group)
    assert {*printed["group"][group]["targets"]} == wanted
    assert wanted <= {*printed["target"]}


def test_bake_reads_that_nothing_is_to_be_built(checkout: Checkout) -> None:
    definition = _definition(checkout, "--name", "tf-2.2-gpu-ubuntu", "--shard", "2/2")
    assert _printed(checkout, definition)["group"]["default"]["targets"] == []
