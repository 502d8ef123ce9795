"""The base image from a registry, by digest: a real registry, on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import COPY_REPOSITORY, Checkout
from own_registry import own_registry

from imgbuild.engine.client import Engine
from imgbuild.settings import load_settings


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Give the address of a registry that lives as long as the test."""
    with own_registry(tmp_path / "registry") as own:
        yield own.host


def _pushed(checkout: Checkout, engine: Engine, repository: str) -> str:
    """Push the base image that the checkout's image stands on; return its reference by digest."""
    built = engine.inspect(f"{COPY_REPOSITORY}:1.10-cpu-debian")
    assert built is not None
    engine.tag(built.labels["org.opencontainers.image.base.name"], f"{repository}:12")
    pushed = checkout.docker("push", f"{repository}:12", code=0)
    engine.untag(f"{repository}:12")
    digest = next(word for word in pushed.stdout.split() if word.startswith("sha256:"))
    return f"{repository}@{digest}"


def _use_base(copy: Checkout, reference: str) -> None:
    settings = copy.root / "imgbuild.local.yaml"
    document = load_settings(settings).model_dump(mode="json", by_alias=True, exclude_none=True)
    document["base"] = {"debian-12": {"from": "registry", "image": reference}}
    settings.write_text(json.dumps(document))  # JSON is YAML


def test_a_base_by_digest_is_used_and_said(copy: Checkout, engine: Engine, registry: str) -> None:
    copy.run("build", "--tf", "1.10", "--no-test")
    reference = _pushed(copy, engine, f"{registry}/debian")
    _use_base(copy, reference)
    assert copy.plan("1.10")["reason"].startswith("changed: base ")
    copy.run("build", "--tf", "1.10", "--no-test")
    stored = engine.inspect(f"{COPY_REPOSITORY}:1.10-cpu-debian")
    assert stored is not None
    assert stored.labels["imgbuild.input.base"] == "registry"
    assert stored.labels["org.opencontainers.image.base.name"] == f"{registry}/debian"
    assert stored.labels["org.opencontainers.image.base.digest"] == reference.split("@")[1]


def test_a_base_that_the_registry_does_not_have(copy: Checkout, registry: str) -> None:
    _use_base(copy, f"{registry}/debian@sha256:{'0' * 64}")
    result = copy.run("build", "--tf", "1.10", "--no-test", code=None)
    assert result.returncode in {1, 3}
    assert registry in result.stderr
