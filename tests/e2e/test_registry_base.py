"""The base image from a registry, by digest: a real registry, on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from conftest import COPY_REPOSITORY

from imgbuild.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Checkout

    from imgbuild.engine.protocol import Engine


def _program(folder: Path) -> str:
    """Return the path of docker-registry, unpacked from Debian's package if not installed."""
    installed = shutil.which("docker-registry")
    if installed:
        return installed
    if not shutil.which("apt-get"):
        pytest.skip("no docker-registry here, and no apt-get to fetch it with")
    subprocess.run(["apt-get", "-q", "download", "docker-registry"], cwd=folder, check=True)
    (package,) = folder.glob("docker-registry_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    return str(folder / "root" / "usr" / "bin" / "docker-registry")


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Give the address of a registry that lives as long as the test."""
    address = f"127.0.0.1:{_free_port()}"
    config = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "data")}},
        "http": {"addr": address},
        "log": {"level": "error"},
    }
    (tmp_path / "config.yml").write_text(json.dumps(config))
    command = [_program(tmp_path), "serve", str(tmp_path / "config.yml")]
    with (tmp_path / "registry.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for(address)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(address: str) -> None:
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://{address}/v2/", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"the registry at {address} does not answer")


def _pushed(checkout: Checkout, engine: Engine, repository: str) -> str:
    """Push the bootstrapped base image; return its reference by digest."""
    label = "org.opencontainers.image.base.name"
    source = next(image.labels[label] for image in engine.images(label))
    engine.tag(source, f"{repository}:12")
    pushed = checkout.docker("push", f"{repository}:12")
    assert pushed.returncode == 0, pushed.stderr
    engine.untag(f"{repository}:12")
    digest = next(word for word in pushed.stdout.split() if word.startswith("sha256:"))
    return f"{repository}@{digest}"


def _use_base(copy: Checkout, reference: str) -> None:
    settings = copy.root / "imgbuild.local.yaml"
    document = load_settings(settings).model_dump(mode="json", by_alias=True, exclude_none=True)
    document["base"] = {"debian-12": {"from": "registry", "image": reference}}
    settings.write_text(json.dumps(document))  # JSON is YAML


def test_a_base_by_digest_is_used_and_said(copy: Checkout, engine: Engine, registry: str) -> None:
    assert copy.run("build", "--tf", "1.10", "--no-test").returncode == 0
    reference = _pushed(copy, engine, f"{registry}/debian")
    _use_base(copy, reference)
    assert copy.plan("1.10")["reason"].startswith("changed: base ")
    result = copy.run("build", "--tf", "1.10", "--no-test")
    assert result.returncode == 0, result.stderr
    stored = engine.inspect(f"{COPY_REPOSITORY}:1.10-cpu-debian")
    assert stored is not None
    assert stored.labels["imgbuild.input.base"] == "registry"
    assert stored.labels["org.opencontainers.image.base.name"] == f"{registry}/debian"
    assert stored.labels["org.opencontainers.image.base.digest"] == reference.split("@")[1]


def test_a_base_that_the_registry_does_not_have(copy: Checkout, registry: str) -> None:
    _use_base(copy, f"{registry}/debian@sha256:{'0' * 64}")
    result = copy.run("build", "--tf", "1.10", "--no-test")
    assert result.returncode in {1, 3}
    assert registry in result.stderr
    assert "Traceback" not in result.stderr
