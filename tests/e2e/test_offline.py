"""``fetch``, then ``build --offline`` in an engine without a network, with the other image store.

So one image is built, tested, pushed and pulled on each store: here, and in test_build.py.
"""

import subprocess
from pathlib import Path

import pytest
from checkout import COPY_REPOSITORY, Checkout
from copied_checkout import copied_checkout
from store_trip import OtherEngine, push_and_pull

from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import DEFAULT_HOST
from imgbuild.files import ContentStore
from imgbuild.inputs.download import Kind
from imgbuild.inputs.fetched import Listing, read_listing
from releases import release_of

#: The quickest image to build.
SELECTION = ("--tf", "1.10", "--cpu", "--stack", "debian")
NAME = "tf-1.10-cpu-debian"
ALONE = ("unshare", "--net", "--")


@pytest.fixture(scope="module")
def fetched(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all inputs of the image."""
    folder = tmp_path_factory.mktemp("fetched")
    result = checkout.run("fetch", *SELECTION, str(folder))
    assert "fetched now" in result.stdout
    return folder


@pytest.fixture(scope="module")
def alone(other: OtherEngine, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Return a checkout that builds in the engine without a network."""
    root, state = tmp_path_factory.mktemp("alone") / "checkout", tmp_path_factory.mktemp("state")
    copied_checkout(root, COPY_REPOSITORY, ("images", "tests/image"), host=other.host)
    made = Checkout(root, state, other.host)
    made.run("render")
    return made


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
    assert kinds >= {Kind.PYTHON, Kind.APT_LIST, Kind.APT_PACKAGE, Kind.APT_MIRRORS}
    assert listing.missing(ContentStore(fetched)) == ()
    names = {item.name for item in listing.items if item.kind is Kind.PYTHON}
    assert f"tensorflow-{release_of('1.10')}-cp36-cp36m-manylinux1_x86_64.whl" in names
    assert "horovod-0.15.2.tar.gz" in names


def test_a_second_fetch_fetches_nothing(checkout: Checkout, fetched: Path) -> None:
    result = checkout.run("fetch", *SELECTION, str(fetched))
    assert "nothing to fetch." in result.stdout
    assert _listing(fetched).contents(fetched) in result.stdout
    assert result.stderr == ""


def test_a_missing_input_is_named_before_anything_is_built(
    alone: Checkout, fetched: Path, tmp_path: Path
) -> None:
    item = next(one for one in _listing(fetched).items if one.kind is Kind.APT_PACKAGE)
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
    assert f"{_listing(fetched).contents(fetched)}; compare" in result.stderr
    name = f"{COPY_REPOSITORY}:1.10-cpu-debian"
    outside = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    ran = alone.docker("run", "--rm", name, "python", "-c", outside)
    assert "Network is unreachable" in ran.stderr


def test_the_image_is_pushed_by_the_other_store_and_pulled_by_the_main_one(
    alone: Checkout, other: OtherEngine, checkout: Checkout, tmp_path: Path
) -> None:
    """It is the image of the test above."""
    engine = Engine(other.host)
    assert engine.version().containerd_store == other.containerd_store
    engine.close()
    push_and_pull(alone, NAME, other, checkout.host or DEFAULT_HOST, tmp_path)
