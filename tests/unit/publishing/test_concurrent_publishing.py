"""Several publish at once, interleaved at every step: no record is ever lost from the index."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from memory_registry import MemoryRegistry
from published_images import publish

from imgbuild.publishing import index as index_module
from imgbuild.publishing.index import read_index, update_index
from imgbuild.publishing.record import read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: More calls than one who publishes alone makes.
STEPS = 20
FIRST, SECOND, LAST = (f"2026-11-2{day}T00:00:00Z" for day in range(3))


class Killed(BaseException):
    """Ends a writer in the middle of what it does."""


class Writer:
    """Publishes one image in a thread of its own, one call of the registry a `step`.

    ``changes`` are those of its record; the image may be there: then its record is written again.
    """

    def __init__(self, shared: MemoryRegistry, tag: str, **changes: Any) -> None:
        self.registry = MemoryRegistry(shared.name, self._wait)
        self.registry.tagged = shared.tagged
        self.registry.manifests = shared.manifests
        self.registry.blobs = shared.blobs
        self.tag = tag
        self.changes = {"moving": (), **changes}
        self.done = False
        self._killed = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._stopped.acquire(timeout=10)

    def step(self) -> None:
        """Let it do its next call, and all that it does by itself before the one after that."""
        if not self.done:
            self._go.release()
            assert self._stopped.acquire(timeout=10)

    def finish(self) -> None:
        while not self.done:
            self.step()

    def kill(self) -> None:
        """End it before its next call."""
        self._killed = True
        self.step()

    def _wait(self, _call: str) -> None:
        self._stopped.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def _run(self) -> None:
        try:
            publish(self.registry, self.tag, **self.changes)
            update_index(self.registry, lambda _text: None, [self.tag])
        except Killed:
            pass
        finally:
            self.done = True
            self._stopped.release()


@pytest.fixture(autouse=True)
def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a writer make one call at a time, so that steps are steps."""
    monkeypatch.setattr(index_module, "_WORKERS", 1)


def indexed(registry: MemoryRegistry) -> set[str]:
    found = read_index(registry)
    return {record.tag for record in found.records} if found else set()


def run(play: Callable[[list[Writer]], None], writers: int = 2) -> None:
    """Let writers publish as ``play`` has it, and look whether all is in the index."""
    shared = MemoryRegistry()
    started = [Writer(shared, f"image-{number}") for number in range(writers)]
    play(started)
    for writer in started:
        writer.finish()
    assert indexed(shared) == {writer.tag for writer in started}


def pauses() -> Iterator[tuple[int, int]]:
    return ((first, second) for first in range(STEPS) for second in range(STEPS))


def test_a_writer_alone_makes_fewer_calls_than_are_tried() -> None:
    writer = Writer(MemoryRegistry(), "image")
    writer.finish()
    assert 8 < len(writer.registry.calls) < STEPS


@pytest.mark.parametrize("first", range(STEPS))
def test_two_stop_at_every_pair_of_steps(first: int) -> None:
    for second in range(STEPS):

        def play(writers: list[Writer], steps: tuple[int, int] = (first, second)) -> None:
            one, two = writers
            for writer, count in ((one, steps[0]), (two, steps[1])):
                for _ in range(count):
                    writer.step()
            one.finish()

        run(play)


def _rolled_back() -> tuple[MemoryRegistry, Writer]:
    """Return a registry where two images have one moving tag, and who gives it to the older one."""
    shared = MemoryRegistry()
    for tag, published in (("old", FIRST), ("new", SECOND)):
        publish(shared, tag, moving=("2.2",), published=published)
    assert update_index(shared, print).holders["2.2"].tag == "new"
    return shared, Writer(shared, "old", moving=("2.2",), published=LAST)


@pytest.mark.parametrize("first", range(STEPS))
def test_a_record_is_written_again_beside_another_push(first: int) -> None:
    """Both stop at every pair of steps: a roll-back is never lost from the index."""
    for second in range(STEPS):
        for one_ends_first in (True, False):
            shared, back = _rolled_back()
            other = Writer(shared, "other")
            for writer, count in ((back, first), (other, second)):
                for _ in range(count):
                    writer.step()
            for writer in (back, other) if one_ends_first else (other, back):
                writer.finish()
            index = read_index(shared)
            assert index
            assert (index.holders["2.2"].tag, indexed(shared)) == ("old", {"old", "new", "other"})
            assert index.holders["2.2"].published == LAST


@pytest.mark.parametrize("killed_at", range(STEPS))
def test_a_roll_back_that_was_killed_is_in_the_next_index(killed_at: int) -> None:
    """If its record is there: then another push tells of it."""
    shared, back = _rolled_back()
    for _ in range(killed_at):
        back.step()
    back.kill()
    Writer(shared, "other").finish()
    index, record = read_index(shared), read_record(shared, "old")
    assert index
    assert record
    assert record.brief in index.records


@pytest.mark.parametrize("seed", range(40))
def test_three_in_any_order(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same order in each run

    def play(writers: list[Writer]) -> None:
        while not all(writer.done for writer in writers):
            chance.choice(writers).step()

    run(play, 3)


@pytest.mark.parametrize("killed_at", range(STEPS))
def test_one_is_killed_and_publishes_again(killed_at: int) -> None:
    """The other publishes all of its image at any moment before."""
    for paused_at in range(killed_at + 1):
        shared = MemoryRegistry()
        one, two = Writer(shared, "image-1"), Writer(shared, "image-2")
        for step in range(killed_at + 1):
            if step == paused_at:
                two.finish()
            one.step()
        one.kill()
        Writer(shared, "image-1").finish()
        assert indexed(shared) == {"image-1", "image-2"}
