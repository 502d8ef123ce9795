"""A step that hangs is stopped, in the engine too, and takes no other image with it."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import COPY_REPOSITORY

from imgbuild.engine.bake import BakeTarget, BuildFailedError, run_bake
from imgbuild.engine.buildx import Buildx, find_buildx
from imgbuild.project import Project
from imgbuild.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Base, Checkout

    from imgbuild.engine.protocol import Engine

ROOT = Path(__file__).resolve().parents[2]
NAME = "tf-1.10-cpu-debian"


@dataclass(frozen=True)
class Baker:
    """Bakes images of one command each; ``mark`` makes them this test's own."""

    folder: Path
    buildx: Buildx
    host: str | None
    parent: str
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    made: list[str] = field(default_factory=list)

    def bake(self, seconds: float, **commands: str) -> set[str]:
        """Build the images by name and return the names; ``seconds`` is the limit of a step."""
        targets = []
        for name, command in commands.items():
            dockerfile = self.folder / f"Dockerfile.{name}"
            dockerfile.write_text(f"FROM {self.parent}\nRUN : {self.mark}; {command}\n")
            targets.append(BakeTarget(name, self.folder, dockerfile))
        limited = replace(self.buildx, step_seconds=seconds)
        log = self.folder / "log"
        built = run_bake(limited, self.host, targets, log=log, events=lambda _: None)
        self.made.extend(image.image_id for image in built.values())
        return set(built)

    def processes(self) -> set[int]:
        """Return the processes on this machine whose command holds the mark."""
        found = Path("/proc").glob("[0-9]*/cmdline")
        return {int(path.parent.name) for path in found if self._is_own(path)}

    def watch(self, over: threading.Event, seen: set[int]) -> None:
        """Collect the processes until it is over."""
        while not over.wait(0.1):
            seen |= self.processes()

    def _is_own(self, path: Path) -> bool:
        try:
            return self.mark.encode() in path.read_bytes()
        except OSError:  # it has ended
            return False


@pytest.fixture
def baker(
    tmp_path: Path, host: str | None, engine: Engine, base: Callable[[str], Base]
) -> Iterator[Baker]:
    """Give a baker on a small image of the matrix; what it makes is removed again."""
    buildx = find_buildx(load_settings(Project(ROOT).settings).engine)
    one = Baker(tmp_path, buildx, host, base(NAME).tag)
    yield one
    for image_id in one.made:
        engine.discard(image_id)


def test_a_hung_step_is_killed_and_the_others_can_be_built(baker: Baker) -> None:
    seen: set[int] = set()
    over = threading.Event()
    watcher = threading.Thread(target=baker.watch, args=(over, seen))
    watcher.start()
    try:
        with pytest.raises(BuildFailedError) as caught:
            baker.bake(4, bad="echo it begins; sleep 1000", good="echo good")
    finally:
        over.set()
        watcher.join()
    failure = caught.value.failure
    assert failure.failed == ("bad",)
    assert failure.step.endswith("echo it begins; sleep 1000")
    assert failure.tail == ("it begins",)
    said = "ran for more than 4s (--step-timeout 4s). It was stopped, in the engine too."
    assert said in str(caught.value)
    assert seen
    end = time.monotonic() + 30
    while baker.processes():
        assert time.monotonic() < end, "the step still runs in the engine"
        time.sleep(0.1)
    assert baker.bake(60, good="echo good") == {"good"}


def test_a_step_within_the_limit_is_left_alone(baker: Baker) -> None:
    assert baker.bake(60, slow="sleep 2") == {"slow"}


def test_the_command_line_sets_the_limit(
    copy: Checkout, engine: Engine, base: Callable[[str], Base]
) -> None:
    base(NAME)  # whose steps then come from the cache
    stalled = "RUN sleep 300\nENTRYPOINT"
    copy.edit("images/templates/partials/final.j2", "ENTRYPOINT", stalled)
    result = copy.run("build", "--tf", "1.10", "--step-timeout", "15s", timeout=300)
    assert result.returncode == 1, result.stderr
    assert "RUN sleep 300': ran for more than 15s (--step-timeout 15s)." in result.stderr
    tags = [tag for image in engine.images("imgbuild.name") for tag in image.tags]
    assert not [tag for tag in tags if tag.startswith(COPY_REPOSITORY)]
