"""The command line against a real engine, with the settings of this checkout.

Tests that break something work on a copy whose images have another repository than a user's.
"""

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from imgbuild.core.files import hold_lock
from imgbuild.core.project import Project
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import DEFAULT_HOST, resolve_host
from standin.__main__ import gateway, open_context, prepare
from standin.family import CORNERS, Family
from standin.server import StandInServer, serve
from support.checkout import COPY_REPOSITORY, ROOT, Base, Bases, Checkout, not_imgbuilds
from support.copied_checkout import copied_checkout, remove_images
from support.own_dockerd import OwnDockerd, own_dockerd
from support.small_project import SmallProject, small_project
from support.store_trip import OtherEngine, other_engine

#: Of the images that tests take as bases, those whose own suites are run: the one with the MPI that
#: the three of test_build.py do not have.
ALSO_TESTED = ("tf-1.12-cpu-debian-intelmpi",)
#: The limit of a test that has none of its own, in seconds; the first of a session builds images.
LIMIT = 1800
#: Modules that use the engine with the other image store: of several workers one runs them all.
OTHER_STORE = ("builders", "offline", "reproduce")


class ByModule(LoadScopeScheduling):  # type: ignore[misc] # of a package without types
    """Each module's tests go to one worker (pytest -n), but those of broken images to any."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        name = Path(file).stem.removeprefix("test_")
        return "other store" if name in OTHER_STORE else nodeid if name == "broken" else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByModule:
    """Divide tests so. The marker xdist_group has no effect in pytest-xdist 3.8 on pytest 9.2."""
    return ByModule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test a limit."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session", autouse=True)
def _no_surroundings() -> Iterator[None]:
    """Be not deaf to Ctrl-C and hang-ups, as background jobs are; read no settings of the user."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with pytest.MonkeyPatch.context() as patch:
        for name in {*os.environ} - {*not_imgbuilds(os.environ)}:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def host() -> str | None:
    return resolve_host(Project(ROOT).settings.engine)


@pytest.fixture(scope="session")
def engine(host: str | None) -> Iterator[Engine]:
    with closing(Engine(host)) as connected:
        yield connected


@pytest.fixture(scope="session")
def other(engine: Engine) -> Iterator[OtherEngine]:
    with other_engine(engine) as running:
        yield running


@pytest.fixture(scope="module")
def dockerd(request: pytest.FixtureRequest) -> Iterator[OwnDockerd]:
    """Give an engine that the tests of a module may stop, kill and fill up, with its options."""
    with own_dockerd(*getattr(request.module, "DOCKERD_OPTIONS", ())) as running:
        yield running


@pytest.fixture(scope="session")
def checkout(host: str | None, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Return this checkout itself: what it builds is what users get, and stays."""
    return Checkout(ROOT, tmp_path_factory.mktemp("state"), host)


@pytest.fixture
def copy(tmp_path: Path, host: str | None, engine: Engine) -> Iterator[Checkout]:
    """Give a copy to break things in; its images are removed again."""
    root = tmp_path / "checkout"
    copied_checkout(root, COPY_REPOSITORY, ("images", "tests/image"))
    made = Checkout(root, tmp_path / "state", host)
    made.render()
    yield made
    remove_images(engine, COPY_REPOSITORY)


@pytest.fixture
def project(
    request: pytest.FixtureRequest, tmp_path: Path, host: str | None
) -> Iterator[SmallProject]:
    """Give a small project on the machine's engine or, as ``other``, on the other image store."""
    other = getattr(request, "param", "main") == "other"
    address = request.getfixturevalue("other").host if other else host
    made = small_project(tmp_path, address or DEFAULT_HOST)
    made.say(uuid.uuid4().hex)
    yield made
    made.forget()


@pytest.fixture
def mark(checkout: Checkout) -> Iterator[str]:
    """Give the beginning of names; what has such a name is removed, and the image of `tag`."""
    made = f"imgbuild-e2e-{uuid.uuid4().hex[:12]}"
    yield made
    named = ("--quiet", f"--filter=name={made}")
    containers = checkout.printed("ps", "--all", *named).split()
    checkout.docker("rm", "--force", "--volumes", *containers)
    for kind in ("network", "volume"):
        checkout.docker(kind, "rm", *checkout.printed(kind, "ls", *named).split())
    checkout.docker("rmi", "--force", f"{made}:1")


@pytest.fixture
def tag(mark: str) -> str:
    return f"{mark}:1"


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """Give a folder that the users of containers may write to; pytest's own are closed to them."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture(scope="session")
def upstreams(
    checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[StandInServer, Path]]:
    """Serve the stand-ins; give the server and the settings that name it."""
    context = open_context(Project(checkout.root))
    folder = tmp_path_factory.mktemp("standin")
    with serve(folder, gateway(context)) as server:
        yield server, prepare(context, folder, server.url)


@pytest.fixture(scope="session")
def built(
    checkout: Checkout,
    upstreams: tuple[StandInServer, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, dict[str, Any]]:
    family = Family(Project(checkout.root), upstreams[1], tmp_path_factory.mktemp("reports"))
    found = [outcome for corner in CORNERS for outcome in family.outcomes(*corner)]
    return {outcome["image"]: outcome for outcome in found}


@pytest.fixture(scope="session")
def base(checkout: Checkout, request: pytest.FixtureRequest) -> Bases:
    """Return how to get an image of the matrix by its name; ubuntu's are built on stand-ins."""

    @cache
    def get(name: str) -> Base:
        (row,) = [image for image in checkout.json("list") if image["name"] == name]
        flavour = row["mpi"].partition("-")[0]
        selection = (
            *("--tf", row["tensorflow"], f"--{row['variant']}", "--stack", row["stack"]),
            *("--mpi", flavour),
        )
        if row["stack"] == "debian":
            # Of several workers (pytest -n) one builds what is not there.
            with hold_lock(checkout.state.parents[1] / "bases.lock"):
                (plan,) = checkout.json("build", *selection, "--dry-run", "--no-test")
                if plan["action"] != "nothing":
                    untested = () if name in ALSO_TESTED else ("--no-test",)
                    checkout.run("build", *selection, *untested)
            return Base(row["tags"][0], (), selection)
        built: dict[str, dict[str, Any]] = request.getfixturevalue("built")
        settings = request.getfixturevalue("upstreams")[1]
        return Base(built[name]["tags"][0], ("--settings", str(settings)), selection)

    return get
