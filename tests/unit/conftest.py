"""Fixtures shared by the unit tests: the real matrix, edited copies of it, a server with faults."""

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.net.http import RetryPolicy
from support.bench import bench
from support.faulty_server import FaultyServer, faulty_server
from support.project_copy import PROGRAMS, ROOT, with_images

__all__ = ["bench"]

#: The limit of a test that has none of its own, in seconds.
LIMIT = 60

_BUDGET = re.compile(r", budget: \{[^}]*\}|\n    budget: \{[^}]*\}")


class _LateGrammar(ModuleType):
    """The parser of IRIs that jsonschema imports; its grammar is loaded, in 3 s, by its first use.

    Most workers check no IRI.
    """

    def is_valid_syntax(self, term: str, value: str) -> bool:
        if sys.modules[self.__name__] is self:
            del sys.modules[self.__name__]
        valid: bool = import_module(self.__name__).is_valid_syntax(term, value)
        return valid


sys.modules["rfc3987_syntax"] = _LateGrammar("rfc3987_syntax")


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Start three workers for two cores: a third of the time, tests wait for what they started."""
    cores = yield
    return cores * 3 // 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test a limit.

    Not in pyproject.toml, whose settings also apply to the suites that run in images.
    """
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of later collections of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _signals() -> None:
    """Let the processes that tests start hear Ctrl-C and hang-ups: background jobs ignore them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Collect no garbage: what earlier tests left cannot be finalized at the limit of recursion."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run tests without the settings, state, caches and variables of the user.

    And with a docker client, which commands ask for before they look for an engine.
    """
    own = tmp_path_factory.mktemp("user")
    (own / "docker").write_text("#!/bin/sh\necho 'unit tests have no engine' >&2; exit 1\n")
    (own / "docker").chmod(0o755)
    (own / "cache" / "imgbuild").mkdir(parents=True)  # where compiled templates are kept
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("IMGBUILD_", "COSIGN_"))]:
            if not name.startswith("IMGBUILD_WRITE_"):
                patch.delenv(name)
        patch.delenv("DOCKER_HOST", raising=False)
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):  # uv reads and prints all of them each time
            patch.delenv(name, raising=False)
        patch.setenv("XDG_STATE_HOME", str(own / "state"))
        patch.setenv("XDG_CACHE_HOME", str(own / "cache"))
        patch.setenv("PATH", str(own), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def project() -> Project:
    return Project(ROOT)


@pytest.fixture(scope="session")
def matrix(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    path = with_images(tmp_path_factory.mktemp("matrix"), project) / "matrix.yaml"
    path.write_text(without_budgets(project), encoding="utf-8")
    return load_matrix(path)


def without_budgets(project: Project) -> str:
    """Return the matrix without what images may weigh, which images of tests do not keep to."""
    return _BUDGET.sub("", project.matrix.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def matrix_text(project: Project) -> str:
    """Return the matrix as tests have it."""
    return without_budgets(project)


@pytest.fixture(scope="session")
def images(matrix: Matrix) -> dict[str, Image]:
    return {image.name: image for image in all_images(matrix)}


@pytest.fixture
def edited(tmp_path: Path, project: Project) -> Callable[..., Path]:
    """Return the path of a copy of the matrix with one piece of text replaced."""

    def edit(old: str, new: str, count: int = 1) -> Path:
        text = without_budgets(project)
        assert old in text, f"the matrix no longer holds {old!r}"
        path = with_images(tmp_path, project) / "matrix.yaml"
        path.write_text(text.replace(old, new, count), encoding="utf-8")
        return path

    return edit


@pytest.fixture
def refusal() -> Callable[[Path], str]:
    """Return what loading a matrix is refused with."""

    def load(path: Path) -> str:
        with pytest.raises(InputError) as caught:
            load_matrix(path)
        return str(caught.value)

    return load


@pytest.fixture
def import_program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return how to import one of the programs that run in the images."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    return __import__


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let downloads try again without waiting."""
    monkeypatch.setattr(
        RetryPolicy, "wait", lambda policy, failed, _: 0.0 if failed < policy.attempts else inf
    )


@pytest.fixture
def server(_hasty: None) -> Iterator[FaultyServer]:
    """Give a server on loopback; there is no waiting between tries."""
    with faulty_server() as started:
        yield started
