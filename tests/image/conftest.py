"""Options and fixtures of the in-image suites.

A suite is a file: the suite `horovod` is `test_horovod.py`. The container comes from testinfra's
`--hosts`, what it must be from `--expect`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from container import Container
from copying import copy_programs, remove_programs
from expectation import Expectation, ExpectationError, read_expectation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container import Host

SEE = "see tests/image/README.md"
EXPECTATION = pytest.StashKey[Expectation]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--expect FILE`."""
    group = parser.getgroup("imgbuild")
    group.addoption("--expect", metavar="FILE", help="what the image must be, as JSON")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Refuse to start without both options: exit code 4 and one line, not an error a test.

    Without `--hosts` testinfra would take the local machine and judge the wrong thing.
    """
    expectation_of(session.config)
    if session.config.getoption("--hosts") is None:
        raise pytest.UsageError(f"the in-image suites need --hosts=docker://CONTAINER ({SEE})")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test a pin and one a launcher that the expectation names.

    So a check that this image has no need of does not exist, where a skip would look like one
    that was left out.
    """
    if "component" in metafunc.fixturenames:
        metafunc.parametrize("component", sorted(expectation_of(metafunc.config).pins))
    if "launcher" in metafunc.fixturenames:
        metafunc.parametrize("launcher", launchers(expectation_of(metafunc.config)), scope="module")


def expectation_of(config: pytest.Config) -> Expectation:
    """Return what `--expect` says, read once a session."""
    if EXPECTATION not in config.stash:
        config.stash[EXPECTATION] = _read(config.getoption("--expect"))
    return config.stash[EXPECTATION]


def _read(file: str | None) -> Expectation:
    if file is None:
        raise pytest.UsageError(f"the in-image suites need --expect FILE ({SEE})")
    try:
        return read_expectation(Path(file))
    except ExpectationError as error:
        raise pytest.UsageError(f"--expect {error}") from error


def launchers(expect: Expectation) -> list[str]:
    """Return the programs that must start two ranks in this image.

    horovodrun came with Horovod 0.16 and knows few MPI flavours, so the matrix says where it is.
    """
    return ["mpirun", "horovodrun"] if expect.horovodrun else ["mpirun"]


@pytest.fixture(scope="session")
def expect(request: pytest.FixtureRequest) -> Expectation:
    """Return what the image must be."""
    return expectation_of(request.config)


@pytest.fixture(scope="session")
def copies() -> Iterator[dict[str, Container]]:
    """Give the containers of this session by name, and clean them up at its end."""
    known: dict[str, Container] = {}
    yield known
    for container in known.values():
        remove_programs(container.host, container.programs)


@pytest.fixture(scope="module")
def container(host: Host, copies: dict[str, Container]) -> Container:
    """Return the container under test, with the programs copied into it once a session."""
    key = repr(host)
    if key not in copies:
        copies[key] = Container(host, copy_programs(host))
    return copies[key]
