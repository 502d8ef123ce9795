"""``fetch``, then ``build --offline`` in an engine that has no network at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import COPY_REPOSITORY

from imgbuild.inputs.listing import Kind, Listing, read_listing
from imgbuild.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Checkout

    from imgbuild.engine.client import Engine

#: The quickest image to build.
SELECTION = ("--tf", "1.10", "--cpu", "--stack", "debian")
NAME = "tf-1.10-cpu-debian"
ALONE = ("unshare", "--net", "--")
START_SECONDS = 60


@pytest.fixture(scope="module")
def fetched(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all inputs of the image."""
    folder = tmp_path_factory.mktemp("fetched")
    result = checkout.run("fetch", *SELECTION, str(folder))
    assert result.returncode == 0, result.stderr
    assert "fetched now" in result.stdout
    return folder


@pytest.fixture(scope="module")
def cut_off(engine: Engine) -> Iterator[str]:
    """Give the address of an engine in a network namespace of its own, with nothing in it."""
    if os.geteuid() or not shutil.which("dockerd") or not shutil.which("unshare"):
        pytest.skip("an engine without a network needs root, dockerd and unshare")
    # Beside the other engine's data: an overlay cannot lie on any file system.
    parent = Path(engine.version().root_dir).parent
    folder = Path(tempfile.mkdtemp(prefix="imgbuild-e2e-", dir=parent))
    host = f"unix://{folder}/docker.sock"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(_dockerd(folder, host), stdout=log, stderr=log, cwd="/")
    try:
        _wait_for(host, process, folder / "log")
        yield host
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _dockerd(folder: Path, host: str) -> list[str]:
    (folder / "daemon.json").write_text("{}")
    return [
        *ALONE,
        *("sh", "-c", 'ip link set lo up; exec dockerd "$@"', "sh"),
        f"--data-root={folder}/data",
        f"--exec-root={folder}/run",
        f"--host={host}",
        f"--pidfile={folder}/pid",
        f"--config-file={folder}/daemon.json",
        f"--containerd-namespace={folder.name}",
        f"--containerd-plugins-namespace={folder.name}-plugins",
        "--iptables=false",
        "--ip6tables=false",
    ]


def _wait_for(host: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(START_SECONDS * 5):
        if process.poll() is not None:
            break
        asked = subprocess.run(["docker", "-H", host, "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.2)
    process.terminate()
    pytest.fail(f"the engine does not answer: {log.read_text()[-2000:]}")


@pytest.fixture
def alone(copy: Checkout, cut_off: str) -> Checkout:
    """Return a checkout that builds in the engine without a network."""
    path = copy.root / "imgbuild.local.yaml"
    settings = load_settings(path).model_dump(mode="json", by_alias=True, exclude_none=True)
    settings["engine"] = {**settings.get("engine", {}), "host": cut_off}
    path.write_text(json.dumps(settings))  # JSON is YAML
    return replace(copy, host=cut_off)


def _build(alone: Checkout, fetched: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Build with nothing from this machine's cache, and without a network here either."""
    return subprocess.run(
        [*ALONE, *alone.command("build", *SELECTION, "--offline", str(fetched))],
        cwd=alone.root,
        env={**alone.environment, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )


def _listing(fetched: Path) -> Listing:
    listing = read_listing(fetched, NAME)
    assert listing is not None
    return listing


def test_every_input_is_listed(fetched: Path) -> None:
    listing = _listing(fetched)
    kinds = {item.kind for item in listing.items}
    assert kinds >= {Kind.PYTHON, Kind.BASE, Kind.APT_LIST, Kind.APT_PACKAGE, Kind.APT_MIRRORS}
    assert listing.missing(fetched) == ()
    names = {item.name for item in listing.of(Kind.PYTHON)}
    assert "tensorflow-1.10.0-cp36-cp36m-manylinux1_x86_64.whl" in names
    assert "horovod-0.15.2.tar.gz" in names


def test_a_second_fetch_fetches_nothing(checkout: Checkout, fetched: Path) -> None:
    result = checkout.run("fetch", *SELECTION, str(fetched))
    assert result.returncode == 0, result.stderr
    assert "nothing to fetch." in result.stdout
    assert result.stderr == ""


def test_a_missing_input_is_named_before_anything_is_built(
    alone: Checkout, fetched: Path, tmp_path: Path
) -> None:
    item = _listing(fetched).of(Kind.APT_PACKAGE)[0]
    path = fetched / "sha256" / item.sha256[:2] / item.sha256
    path.rename(tmp_path / "away")
    try:
        result = _build(alone, fetched, tmp_path / "cache")
    finally:
        (tmp_path / "away").rename(path)
    assert result.returncode == 2, result.stderr
    assert f"lacks {item.name} (apt-package" in result.stderr


def test_an_image_is_built_and_tested_without_a_network(
    alone: Checkout, fetched: Path, tmp_path: Path
) -> None:
    result = _build(alone, fetched, tmp_path / "cache")
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert "tensorboard passed, tensorflow passed" in result.stdout
    name = f"{COPY_REPOSITORY}:1.10-cpu-debian"
    outside = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    ran = alone.docker("run", "--rm", name, "python", "-c", outside)
    assert "Network is unreachable" in ran.stderr
