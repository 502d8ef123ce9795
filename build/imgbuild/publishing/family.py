"""Publishing several images at once; one failure stops no other, an interrupt stops all."""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.publishing.approved import Approved
from imgbuild.publishing.publish import Published

Publish = Callable[[Approved], Published]

#: How often the main thread looks up, so that an interrupt reaches it, in seconds.
_BEAT_SECONDS = 0.1
#: How long an interrupt waits for threads that the engine says nothing to, in seconds.
_END_SECONDS = 5.0


class StoppedError(Exception):
    """The push was interrupted; raised in the threads that work on it."""


@dataclass
class Family:
    """What became of all images, in the order asked for."""

    published: list[Published] = field(default_factory=list)
    errors: dict[str, ImgbuildError] = field(default_factory=dict)

    def fail(self, faults: Mapping[str, str]) -> None:
        """Let these images, by name, have failed with these words after all."""
        self.published = [one for one in self.published if one.record.image not in faults]
        self.errors |= {name: CheckFailedError(text) for name, text in faults.items()}


@dataclass
class _Work:
    """The images that are still to do, and what became of the others."""

    publish: Publish
    stop: threading.Event
    left: queue.SimpleQueue[Approved] = field(default_factory=queue.SimpleQueue)
    found: dict[str, Published | Exception] = field(default_factory=dict)

    def run(self, ended: threading.Event) -> None:
        try:
            self._run()
        finally:
            ended.set()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                image = self.left.get_nowait()
            except queue.Empty:
                return
            try:
                self.found[image.name] = self.publish(image)
            except Exception as error:  # noqa: BLE001 - the main thread raises it
                self.found[image.name] = error


def publish_family(
    images: Sequence[Approved], publish: Publish, jobs: int, stop: threading.Event
) -> Family:
    """Return what became of the images, ``jobs`` of them at a time.

    An interrupt sets ``stop``, which ends every push that listens to it. One that hears nothing
    from the engine is left behind after some seconds: its thread ends with the program.
    """
    work = _Work(publish, stop)
    for image in images:
        work.left.put(image)
    ends = [threading.Event() for _ in range(jobs)]
    for ended in ends:
        threading.Thread(target=work.run, args=(ended,), daemon=True).start()
    try:
        _wait(ends, None)
    except BaseException:
        stop.set()
        _wait(ends, time.monotonic() + _END_SECONDS)
        raise
    return _family(images, work.found)


def _wait(ends: Sequence[threading.Event], until: float | None) -> None:
    """Wait for all threads; not by join, which takes its thread for ended when interrupted.

    Seen in Python 3.11: cpython issue 90882.
    """
    while not all(ended.is_set() for ended in ends):
        if until is not None and time.monotonic() > until:
            return
        for ended in ends:
            ended.wait(_BEAT_SECONDS)


def _family(images: Sequence[Approved], found: dict[str, Published | Exception]) -> Family:
    family = Family()
    for image in images:
        match found[image.name]:
            case ImgbuildError() as error:
                family.errors[image.name] = error
            case Exception() as error:
                raise error
            case published:
                family.published.append(published)
    return family
