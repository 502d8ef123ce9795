"""Several threads read the suites at the same moment, as the gates of several images do."""

import gc
import time
from collections.abc import Iterator

import pytest

from imgbuild.parallel import in_parallel
from imgbuild.project import Project
from imgbuild.suites.code import Suite, read_suites


@pytest.fixture
def switching() -> Iterator[None]:
    """Let threads change places in the middle of parsing: whenever memory is looked through."""

    def elsewhere(*_: object) -> None:
        time.sleep(0.0001)

    before = gc.get_threshold()
    gc.callbacks.append(elsewhere)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(elsewhere)


@pytest.mark.usefixtures("switching")
def test_all_of_them_read_the_same(project: Project) -> None:
    def read(_: int) -> tuple[Suite, ...]:
        return read_suites(project.suites)

    found = in_parallel(read, range(16), 4)
    assert set(found) == {read_suites(project.suites)}
