"""A step that hangs is stopped, in the engine too, and takes no other image with it."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from own_dockerd import own_dockerd
from small_project import BUILD, SmallProject, small_project

from waiting import wait_for

HANGING, OTHER = "tf-1.10-cpu-debian", "tf-1.11-cpu-debian"
#: More than the other image's steps need, and far less than the hanging one takes.
LIMIT = "15s"
TEMPLATE = "images/templates/Dockerfile.j2"
PLACE = "FROM os AS final\n"


@dataclass(frozen=True)
class Watch:
    """The processes of this machine whose command holds the mark: ``seen`` are all there were."""

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    seen: set[int] = field(default_factory=set)

    @contextmanager
    def watching(self) -> Iterator[None]:
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,))
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def now(self) -> set[int]:
        found = Path("/proc").glob("[0-9]*/cmdline")
        return {int(path.parent.name) for path in found if self._holds(path)}

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(0.1):
            self.seen.update(self.now())

    def _holds(self, path: Path) -> bool:
        try:
            return self.mark.encode() in path.read_bytes()
        except OSError:  # it has ended
            return False


@pytest.fixture
def project(tmp_path: Path) -> Iterator[SmallProject]:
    with own_dockerd() as engine:
        yield small_project(tmp_path, engine.host)


def _images(project: SmallProject) -> list[str]:
    """Return the image of each name that was given."""
    return sorted(image.labels["imgbuild.name"] for image in project.named().values())


def test_one_of_two_images_hangs(project: SmallProject) -> None:
    watch = Watch()
    hangs = f"RUN --network=none : {watch.mark}; echo it begins; sleep 1000\n"
    only = f'{{% if image.name == "{HANGING}" %}}{hangs}{{% endif %}}'
    project.edit(TEMPLATE, PLACE, f"{PLACE}{only}")
    with watch.watching():
        result = project.build("--keep-going", "--step-timeout", LIMIT, code=1)
    assert watch.seen, "the step never ran"
    wait_for(lambda: not watch.now(), 30)  # in the engine
    said = f"ran for more than {LIMIT} (--step-timeout {LIMIT}). It was stopped, in the engine too."
    assert said in result.stderr
    assert f"Building {HANGING} failed in the step" in result.stderr
    assert "echo it begins; sleep 1000" in result.stderr
    assert _images(project) == [OTHER] * 2
    assert project.check_names() == 2
    assert project.left() == []

    project.edit(TEMPLATE, only, "")
    project.build("--step-timeout", LIMIT)
    assert _images(project) == [HANGING] * 2 + [OTHER] * 2
    assert project.check_names() == 4
    assert project.left() == []


def test_who_waits_to_compile_is_not_blamed_for_those_that_hang(project: SmallProject) -> None:
    """Two images hang in the two places to compile; the third waits longer than the limit."""
    waits = "tf-1.12-cpu-debian"
    compiles = (
        "RUN --network=none --mount=type=bind,source=files/compiling.sh,target=/run/compiling.sh "
        "--mount=type=cache,id=places,target=/run/places "
        f'{{{{ "sleep 3; . /run/compiling.sh" if image.name == "{waits}" '
        'else ". /run/compiling.sh; sleep 1000 # " ~ image.name }}\n'  # equal steps would be one
    )
    project.edit(TEMPLATE, PLACE, f"{PLACE}{compiles}")
    result = project.build("--tf", "1.12", "--keep-going", "--step-timeout", LIMIT, code=1)
    assert f"{HANGING}, {OTHER} were not tagged" in result.stderr, result.stderr
    assert f"ran for more than {LIMIT}" in result.stderr
    assert "imgbuild: waits for a place to compile" in project.log()
    assert _images(project) == [waits] * 2
    assert project.left() == []


def test_a_step_within_the_limit_is_left_alone(project: SmallProject) -> None:
    project.pause("middle", 3)
    project.run(*BUILD, "--step-timeout", LIMIT, timeout=300)
    assert project.check_names() == 4
