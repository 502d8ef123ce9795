"""Pushes that stop before every request."""

import threading
from dataclasses import replace
from typing import Any, Self

from imgbuild.core.errors import ImgbuildError, MachineError
from imgbuild.matrix.images import Image
from support.memory_registry import MemoryRegistry
from support.push_bench import FIRST
from support.signed_push_bench import SignedBench, provenance

#: More requests than a push makes.
MANY = 1000
#: Pushes of a pair that are killed.
KILLS = ("none", "first", "second", "both")


class PausedPush:
    """A push in a thread of its own, which waits before every request until it may go on."""

    def __init__(
        self,
        image: Image,
        content: str,
        registry: MemoryRegistry,
        kind: type[SignedBench] = SignedBench,
    ) -> None:
        self.bench = kind(image, registry=MemoryRegistry())
        mine = self.bench.registry
        mine.tagged, mine.manifests, mine.blobs = (
            registry.tagged,
            registry.manifests,
            registry.blobs,
        )
        mine.before = self._before
        self.bench.signer.signed = shared_signatures(registry)
        self.content = content
        self.killed = self.done = False
        self.requests = self._allowed = 0
        self._one = threading.Lock()
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._waits.acquire()

    def _before(self, _: str) -> None:
        with self._one:  # some requests are made side by side
            if not self._allowed:
                self._waits.release()
                self._go.acquire()
            self._allowed -= 1
            self.requests += 1
            if self.killed:
                raise MachineError("killed")

    def _run(self) -> None:
        candidate, upload = self.bench.candidate(self.content), self.bench.upload
        try:
            session = replace(self.bench.session("20261120.1"), machine=self.content)
            session.push(candidate, lambda tag: upload(self.content, tag), provenance)
        except ImgbuildError:
            pass
        finally:
            self.done = True
            self._waits.release()

    def run(self, requests: int = MANY) -> None:
        """Let it make so many requests, or end."""
        if requests and not self.done:
            self._allowed = requests
            self._go.release()
            self._waits.acquire()

    def kill(self) -> None:
        self.killed = True
        self.run()


def shared_signatures(registry: MemoryRegistry) -> dict[str, dict[str, bytes]]:
    """Return the signatures of a repository, which all pushes see."""
    known: dict[str, dict[str, bytes]] = registry.__dict__.setdefault("signatures", {})
    return known


class WatchedTags(dict[str, str]):
    """The tags of a repository; ``fixed`` are the digests that the immutable tag ever had."""

    def __init__(self, immutable: str = FIRST) -> None:
        super().__init__()
        self.immutable = immutable
        self.fixed: set[str] = set()

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc, override]
        self.update(other)
        self.fixed |= {self[self.immutable]} if self.immutable in self else set()
        return self

    def __setitem__(self, tag: str, digest: str) -> None:
        super().__setitem__(tag, digest)
        if tag == self.immutable:
            self.fixed.add(digest)


def paused_pushes(image: Image) -> tuple[MemoryRegistry, PausedPush, PausedPush]:
    """Return two pushes of different images into one registry."""
    registry = MemoryRegistry()
    registry.tagged = WatchedTags()
    return registry, PausedPush(image, "one", registry), PausedPush(image, "two", registry)


def request_counts(image: Image) -> tuple[int, int]:
    """Return the numbers of requests of a push alone, and of one after it."""
    _, first, second = paused_pushes(image)
    first.run()
    second.run()
    return first.requests, second.requests


def race(image: Image, before: int, meanwhile: int, kills: str) -> None:
    """Stop a push after ``before`` requests, let another make ``meanwhile``, and go on with both.

    Fails if the immutable tag ever had two images, or one of them can no longer be published.
    """
    registry, first, second = paused_pushes(image)
    first.run(before)
    second.run(meanwhile)
    for push, word in ((first, "first"), (second, "second")):
        if kills in {word, "both"}:
            push.kill()
    first.run()
    second.run()
    moment = f"{before}, then {meanwhile}, killed: {kills}"
    tagged: Any = registry.tagged
    assert len(tagged.fixed) <= 1, moment
    for word in ("one", "two"):  # both are published in the end, under releases of theirs
        bench = SignedBench(image, registry=registry)
        bench.signer.signed = shared_signatures(registry)
        bench.push_signed(word)
    assert len(tagged.fixed) <= 1, moment
    signed = {registry.manifests[digest].config_digest for digest in shared_signatures(registry)}
    assert len(signed) == 2, moment
