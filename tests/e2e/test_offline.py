"""``build --fetch``; ``build --offline`` in an engine without a network, with the other store.

So one image is built, tested, pushed and pulled on each store: here, and in test_build.py.
"""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from imgbuild.core.files import ContentStore
from imgbuild.core.sources import Kind
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import DEFAULT_HOST
from imgbuild.inputs.fetched import read_listing
from support.checkout import Checkout
from support.copied_checkout import copied_checkout
from support.store_trip import OtherEngine, push_and_pull

#: The quickest image to build.
SELECTION = ("--tf", "1.10", "--cpu", "--stack", "debian")
REPOSITORY = "imgbuild-offline/tensorflow"
NAME = "tf-1.10-cpu-debian"
#: The system's packages, and the last step: a graph driver says otherwise that a folder is new.
SYSTEM_LAYERS = 2


class Alone(Checkout):
    def command(self, *arguments: str) -> list[str]:
        return ["unshare", "--net", "--", *super().command(*arguments)]


@pytest.fixture(scope="module")
def fetched(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fetched")
    result = checkout.run("build", *SELECTION, "--fetch", str(folder))
    assert "fetched now" in result.stdout
    return folder


@pytest.fixture(scope="module")
def alone(other: OtherEngine, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Return a checkout that builds in the engine without a network."""
    root, state = tmp_path_factory.mktemp("alone") / "checkout", tmp_path_factory.mktemp("state")
    copied_checkout(root, REPOSITORY, ("images", "tests/image"), host=other.host)
    made = Checkout(root, state, other.host)
    made.render()
    return made


def _build(
    alone: Checkout, fetched: Path, cache: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Build with nothing from this machine's cache, and without a network here either."""
    build = ("build", *SELECTION, "--offline", str(fetched), *options)
    return Alone(alone.root, alone.state, alone.host, cache).run(*build)


def test_every_input_is_listed_and_fetched_once(checkout: Checkout, fetched: Path) -> None:
    listing = read_listing(fetched, NAME)
    assert listing
    kinds = {item.kind for item in listing.items}
    assert kinds >= {Kind.PYTHON, Kind.APT_LIST, Kind.APT_PACKAGE, Kind.APT_MIRRORS}
    assert listing.missing(ContentStore(fetched)) == ()
    result = checkout.run("build", *SELECTION, "--fetch", str(fetched))
    assert "nothing to fetch." in result.stdout
    assert listing.contents(fetched) in result.stdout


def _layers(checkout: Checkout, name: str) -> tuple[str, ...]:
    with closing(Engine(checkout.host)) as engine:
        return tuple(engine.need(name).layers)


def test_an_image_is_built_and_tested_without_a_network(
    alone: Checkout, fetched: Path, checkout: Checkout, tmp_path: Path
) -> None:
    result = _build(alone, fetched, tmp_path / "cache")
    assert "tensorboard passed, tensorflow passed" in result.stdout
    listing = read_listing(fetched, NAME)
    assert listing
    assert f"{listing.contents(fetched)}; compare" in result.stderr
    outside = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    name = f"{REPOSITORY}:1.10-cpu"
    ran = alone.docker("run", "--rm", name, "python", "-c", outside)
    assert "Network is unreachable" in ran.stderr
    # Layers of packages are those of the other store, which was built elsewhere.
    checkout.run("build", *SELECTION, "--no-test")
    main = _layers(checkout, "imgbuild/tensorflow:1.10-cpu")
    assert len({*main} & {*_layers(alone, name)}) >= len(main) - SYSTEM_LAYERS


def test_the_image_is_pushed_by_the_other_store_and_pulled_by_the_main_one(
    alone: Checkout, other: OtherEngine, checkout: Checkout, tmp_path: Path
) -> None:
    """It is the image of the test above."""
    with closing(Engine(other.host)) as engine:
        assert engine.version().containerd_store == other.containerd_store
    push_and_pull(alone, NAME, other, checkout.host or DEFAULT_HOST, tmp_path)


@pytest.mark.nightly
def test_the_image_is_the_same_from_nothing_by_the_other_store(
    alone: Checkout, fetched: Path, tmp_path: Path
) -> None:
    """It is built once, and again with nothing of the first build."""
    name = f"{REPOSITORY}:1.10-cpu"
    _build(alone, fetched, tmp_path / "cache", "--no-test")
    before = _layers(alone, name)
    with closing(Engine(alone.host)) as engine:
        for tag in engine.need(name).tags:
            alone.docker("rmi", tag, code=0)
    alone.docker("builder", "prune", "--all", "--force", code=0)
    _build(alone, fetched, tmp_path / "other-cache", "--no-test")
    assert _layers(alone, name) == before
