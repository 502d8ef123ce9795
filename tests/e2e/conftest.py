"""The command line against a real engine, with the settings of this checkout.

Tests that break something work on a copy of the checkout whose images have another repository, so
that nothing they do can touch the images a user has.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from copied_checkout import SOURCE, TEMPLATE, copied_checkout, remove_images
from own_dockerd import OwnDockerd, own_dockerd
from store_trip import OtherEngine, other_engine

from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import resolve_host
from imgbuild.project import Project
from imgbuild.settings import load_settings
from imgbuild.suites.container import CONTAINER_LABEL, place_of
from standin.__main__ import gateway, open_context, prepare
from standin.family import CORNERS, Family
from standin.server import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from standin.server import StandInServer

ROOT = SOURCE
COPY_REPOSITORY = "imgbuild-e2e/tensorflow"
#: Where inputs come from does not change what tests find; settings, log format and project do.
_KEPT = ("IMGBUILD_MIRRORS",)


def _not_imgbuilds(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that make imgbuild do something else."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("IMGBUILD_") or name in _KEPT
    }


#: The limit of a test that has none of its own, in seconds; the first of a session builds images.
LIMIT = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test a limit."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))


@dataclass(frozen=True)
class Checkout:
    """A checkout and its own state folder; ``run`` is what a user types."""

    root: Path
    state: Path
    host: str | None

    @property
    def project(self) -> Project:
        return Project(self.root)

    @property
    def environment(self) -> dict[str, str]:
        """The user's environment without imgbuild's, with state (reports, logs, locks) apart."""
        docker = {"DOCKER_HOST": self.host} if self.host else {}
        own = {"XDG_STATE_HOME": str(self.state), "COLUMNS": "200"}
        return {**_not_imgbuilds(os.environ), **docker, **own}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", "from imgbuild.cli import main; main()", *arguments]

    def run(
        self, *arguments: str, code: int | None = 0, timeout: int = 1800
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end, which has this exit code (None: any)."""
        result = self._run(self.command(*arguments), code, timeout)
        assert "Traceback" not in result.stderr, result.stderr
        return result

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def docker(self, *arguments: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
        return self._run(["docker", *arguments], code, 300)

    def _run(
        self, command: list[str], code: int | None, timeout: int
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert code in {None, result.returncode}, result.stdout + result.stderr
        return result

    def started(self, engine: Engine) -> set[str]:
        """Return the containers and networks of this checkout's test runs, not of others'."""
        mine = f"@{place_of(self.state / 'imgbuild')}"
        found = {one.id: one.labels for one in engine.containers(CONTAINER_LABEL)}
        found |= {one.id: one.labels for one in engine.networks(CONTAINER_LABEL)}
        return {one for one, labels in found.items() if labels[CONTAINER_LABEL].endswith(mine)}

    def plan(self, tf: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.run("build", "--tf", tf, "--plan", "--json").stdout
        )[0]
        return found

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in a file of the checkout; what is rendered from it is rendered."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} no longer holds {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.render()

    def render(self) -> None:
        self.run("render")

    def say(self, word: str) -> None:
        """Change what small images say, so that they have to be built again."""
        template = self.root / TEMPLATE
        text = template.read_text(encoding="utf-8")
        said = re.sub("^ENV WORD=.*$", f"ENV WORD={word}", text, flags=re.MULTILINE)
        template.write_text(said, encoding="utf-8")
        self.render()

    def log(self) -> str:
        """Return the logs of all builds so far."""
        logs = sorted((self.state / "imgbuild" / "logs").glob("*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)


@pytest.fixture(scope="session", autouse=True)
def _signals() -> None:
    """Let the commands that tests start hear Ctrl-C and hang-ups: background jobs ignore them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_user() -> Iterator[None]:
    """Let this process, too, read the settings of the checkouts: another engine is named there."""
    with pytest.MonkeyPatch.context() as patch:
        for name in {*os.environ} - {*_not_imgbuilds(os.environ)}:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def host() -> str | None:
    return resolve_host(load_settings(Project(ROOT).settings).engine)


@pytest.fixture(scope="session")
def engine(host: str | None) -> Iterator[Engine]:
    connected = Engine(host)
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def other(engine: Engine) -> Iterator[OtherEngine]:
    """Give an engine with the other image store."""
    with other_engine(engine) as running:
        yield running


@pytest.fixture(scope="module")
def dockerd() -> Iterator[OwnDockerd]:
    """Give an engine that the tests of a module may stop, kill and fill up."""
    with own_dockerd() as running:
        yield running


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def checkout(host: str | None, state: Path) -> Checkout:
    """Return this checkout itself: what it builds is what users get, and stays."""
    return Checkout(ROOT, state, host)


@pytest.fixture
def copy(tmp_path: Path, host: str | None, engine: Engine) -> Iterator[Checkout]:
    """Give a copy to break things in; its images are removed again."""
    root = tmp_path / "checkout"
    copied_checkout(root, COPY_REPOSITORY, ("images", "tests/image"))
    made = Checkout(root, tmp_path / "state", host)
    made.render()
    yield made
    remove_images(engine, COPY_REPOSITORY)


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
    found = [outcome for corner in CORNERS for outcome in family.build(*corner)[1]]
    return {outcome["image"]: outcome for outcome in found}


@dataclass(frozen=True)
class Base:
    """An image of the matrix that is there: ``options`` and ``selection`` make imgbuild mean it."""

    tag: str
    options: tuple[str, ...]
    selection: tuple[str, ...]


@pytest.fixture(scope="session")
def base(checkout: Checkout, request: pytest.FixtureRequest) -> Callable[[str], Base]:
    """Return how to get an image of the matrix by its name; it is built where it is missing.

    Those of the stack ``ubuntu`` are built from the stand-ins for its upstreams.
    """

    @cache
    def get(name: str) -> Base:
        listed = json.loads(checkout.run("list", "--json").stdout)
        (row,) = [image for image in listed if image["name"] == name]
        flavour = row["mpi"].partition("-")[0]
        selection = (
            *("--tf", row["tensorflow"], f"--{row['variant']}", "--stack", row["stack"]),
            *("--mpi", flavour),
        )
        if row["stack"] == "debian":
            _have(checkout, selection, test=name in ALSO_TESTED)
            return Base(row["tags"][0], (), selection)
        built: dict[str, dict[str, Any]] = request.getfixturevalue("built")
        settings = request.getfixturevalue("upstreams")[1]
        return Base(built[name]["tags"][0], ("--settings", str(settings)), selection)

    return get


#: Of the images that tests take as bases, those whose own suites are run: one an MPI. Three more
#: are by test_build.py.
ALSO_TESTED = ("tf-1.12-cpu-debian", "tf-1.12-cpu-debian-intelmpi")


def _have(checkout: Checkout, selection: tuple[str, ...], *, test: bool) -> None:
    """Build an image that is not there."""
    plan = checkout.run("build", *selection, "--plan", "--no-test", "--json")
    if json.loads(plan.stdout)[0]["action"] != "nothing":
        checkout.run("build", *selection, *(() if test else ("--no-test",)))
