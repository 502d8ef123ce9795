"""What one fault of a push needs: a registry behind a proxy, a publisher, and the registry's state.

Several are at work side by side: an engine waits five seconds and longer before it tries an upload
again, and that cannot be set.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from fault_counts import EVERY
from own_registry import own_registry
from published_state import IMMUTABLE as RELEASED
from published_state import PublishedState
from publishing_project import IMMUTABLE, MOVING, ONE, REPOSITORY, PublishingProject
from registry_proxy import registry_proxy
from registry_storage import RegistryStorage
from small_disk import small_disk

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from own_dockerd import OwnDockerd
    from own_registry import OwnRegistry
    from registry_proxy import RegistryProxy
    from small_disk import SmallDisk

#: How often imgbuild tries, and its first wait; the second settings are for faults that stay.
PATIENT = {"attempts": 4, "first_wait": 0.05}
HASTY = {"attempts": 1, "first_wait": 0.05}
QUIET_SECONDS = 0.25


#: A few dozen moments of a fault take minutes: `make faults` takes them all.
STRIDE = 8


@dataclass(frozen=True)
class PushKit:
    """One repository that is pushed to through a proxy; ``kept`` is what it holds before."""

    project: PublishingProject
    registry: OwnRegistry
    proxy: RegistryProxy
    state: PublishedState
    kept: Path
    disk: SmallDisk | None = None

    def reset(self) -> None:
        """Let the registry hold what it held at first, and nothing go wrong."""
        if self.disk:
            self.disk.empty()
        self.proxy.heal()
        self.proxy.before = None
        self.quiet()
        self.state.storage.restore(self.kept)
        self.state.fixed.clear()
        self.state.race = False
        self.proxy.broken.clear()
        self.proxy.forget()

    def push(
        self, *options: str, selection: tuple[str, ...] = ONE
    ) -> subprocess.CompletedProcess[str]:
        return self.project.push(self.proxy.host, *options, selection=selection)

    def start(self, *options: str) -> subprocess.Popen[str]:
        return self.project.start(*self.project.push_words(self.proxy.host, *options))

    def rerun(self) -> None:
        """Push when all is well again, and fail unless it is done then."""
        self.proxy.heal()
        result = self.push()
        assert result.returncode == 0, f"the rerun: {said(result)}"

    def check(self, *versions: str, releases: int = 1) -> dict[str, str]:
        """Fail unless exactly the planned tags are there, and were right at every moment."""
        assert not self.proxy.broken, self.proxy.broken
        tags = self.state.storage.tags()
        found = sorted({match[1] for match in map(RELEASED.fullmatch, tags) if match})
        numbers = [int(one.partition(".")[2]) for one in found]
        assert numbers == [*range(1, releases + 1)], f"not {releases} releases: {sorted(tags)}"
        planned = [
            *(f"{IMMUTABLE[version]}-{release}" for version in versions for release in found),
            *(tag for version in versions for tag in MOVING[version]),
        ]
        tags = self.state.check_done(*planned)
        for version in versions:
            released = {tags[f"{IMMUTABLE[version]}-{release}"] for release in found}
            moved = {tags[tag] for tag in MOVING[version]}
            assert len(moved) == 1, f"the ladder is split: {tags}"
            assert moved <= released, f"{version} is another image: {tags}"
        return tags

    def quiet(self) -> None:
        """Wait until the engine asks nothing more on behalf of a push that has ended."""
        asked = -1
        while asked != len(self.proxy.asked):
            asked = len(self.proxy.asked)
            time.sleep(QUIET_SECONDS)


def said(result: subprocess.CompletedProcess[str]) -> str:
    return f"exit code {result.returncode}: {result.stderr[-2000:]}"


def explained(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Fail unless a push failed as it should: by its exit code, in words, and not in a trace."""
    assert result.returncode in {1, 3}, said(result)
    assert "Traceback" not in result.stderr, said(result)
    for word in words:
        assert word in result.stderr, f"{word!r} is not in: {said(result)}"


def of_another_machine(project: PublishingProject, folder: Path) -> PublishingProject:
    """Return the project of someone else who has the same images and knows that they passed."""
    state = folder / "state"
    shutil.copytree(project.state, state, dirs_exist_ok=True)
    made = replace(project, state=state)
    made.docker_config.mkdir(exist_ok=True)
    return made


@dataclass(frozen=True)
class PushKits:
    """Makes kits whose repositories hold the base image's layer and no tag.

    ``login`` is what the registries want and the projects have; ``disk`` is the size of theirs in
    bytes, if it shall be filled.
    """

    project: PublishingProject
    dockerd: OwnDockerd
    folder: Path
    login: tuple[str, str] | None = None
    disk: int = 0

    @contextmanager
    def made(self, count: int) -> Iterator[list[PushKit]]:
        """Give so many kits, whose registries run until the end."""
        with ExitStack() as stack:
            yield [self._made(self.folder / f"kit{number}", stack) for number in range(count)]

    def _made(self, place: Path, stack: ExitStack) -> PushKit:
        disk = stack.enter_context(small_disk(place / "disk", self.disk)) if self.disk else None
        registry = stack.enter_context(
            own_registry(
                place / "registry", login=self.login, storage=disk.folder if disk else None
            )
        )
        proxy = stack.enter_context(registry_proxy(registry.port))
        assert self.dockerd.process
        proxy.listen_in(self.dockerd.process.pid)
        own = of_another_machine(self.project, place)
        if self.login:
            own.log_in(proxy.host, *self.login)
        state = PublishedState(RegistryStorage(registry.storage, REPOSITORY), own.green)
        proxy.after_manifest = state.check
        kept = self.folder / "kept"
        if not kept.exists():
            _push_base(own, proxy, state.storage)
            state.storage.keep(kept)
        return PushKit(own, registry, proxy, state, kept, disk)


def _push_base(project: PublishingProject, proxy: RegistryProxy, storage: RegistryStorage) -> None:
    """Push the base image, and forget that there was a tag: its 40 MB need no second push."""
    base = project.docker("images", "--quiet", "imgbuild/base").stdout.split()[0]
    name = f"{proxy.host}/{REPOSITORY}:base"
    for line in (("tag", base, name), ("push", name), ("rmi", name)):
        result = project.docker(*line)
        assert result.returncode == 0, result.stderr
    shutil.rmtree(storage.place("_manifests"))


def at_each(
    kits: Sequence[PushKit], moments: Sequence[int], work: Callable[[PushKit, int], None]
) -> None:
    """Do the work at each moment, on a kit that was reset; fail with every moment that failed.

    Unless `EVERY` of them is asked for, at one of `STRIDE` and at the last: other moments in other
    tests.
    """
    moments = moments if EVERY else _some(moments)
    free: SimpleQueue[PushKit] = SimpleQueue()
    for kit in kits:
        free.put(kit)

    def one(moment: int) -> str:
        kit = free.get()
        try:
            kit.reset()
            work(kit, moment)
        except Exception as wrong:  # noqa: BLE001 - all of them are told
            asked = [one for one in kit.proxy.asked if one.number == moment]
            return f"request {moment} of {len(moments)} {asked}: {type(wrong).__name__}: {wrong}"
        finally:
            free.put(kit)
        return ""

    with ThreadPoolExecutor(len(kits)) as pool:
        failed = list(filter(None, pool.map(one, moments)))
    assert not failed, "\n\n".join([f"{len(failed)} of {len(moments)} moments", *failed])


def _some(moments: Sequence[int]) -> list[int]:
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    return sorted({*moments[zlib.crc32(test.encode()) % STRIDE :: STRIDE], moments[-1]})
