"""A registry, and an engine whose images are words, for pushes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from imgbuild.engine.types import StoredImage
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import input_tag
from imgbuild.net.repository import digest_of
from imgbuild.net.signing import TYPES
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.image_push import Push, PushedImage
from imgbuild.publish.record import Record, put_record, read_record
from imgbuild.suites.results import suite_result
from support.memory_registry import MemoryRegistry, configuration_bytes
from support.releases import release_of
from support.suite_results import stored

NAME = "tf-2.2-cpu-debian"
STEM = f"{release_of('2.2')}-cpu-py36-debian12-openmpi4.1.4"
FIRST, SECOND = f"{STEM}-20261120.1", f"{STEM}-20261120.2"
MOVING = ("2.2-cpu", f"{release_of('2.2')}-cpu")
REPORT = {"pins": stored(suite_result("pins", passed=3), "key")}
PACKAGES = {"numpy": "1.18.5"}
SNAPSHOT = {"imgbuild.snapshot.debian": "20261101T000000Z"}


def id_of(content: str) -> str:
    """Return the id, on a graph driver, of the image that this word stands for."""
    return digest_of(configuration_bytes(content))


def input_of(content: str) -> str:
    return input_tag(digest_of(content.encode()))


def documents(*_: object) -> dict[str, bytes]:
    """Return what is said of an image."""
    return dict.fromkeys(TYPES, b"{}")


def place_image(registry: MemoryRegistry, content: str, tag: str) -> str:
    """Put an image under a tag, as another's push does; return its digest."""
    registry.tagged[tag] = registry.add_image(content).digest
    del registry.tagged[content]
    return registry.tagged[tag]


@dataclass
class PushBench:
    """A registry, and an engine whose images are words."""

    image: Image
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    hour: int = 10

    def candidate(self, content: str = "one", image_id: str = "") -> PushCandidate:
        platform = self.image.platform
        stored = StoredImage(image_id or id_of(content), labels=SNAPSHOT, platform=platform)
        what = (self.image, stored, digest_of(content.encode()), REPORT, (), PACKAGES)
        return PushCandidate(*what, work_seconds=float(self.hour))  # another one each time

    def session(self, release: str | None = None, now: datetime | None = None) -> Push:
        self.hour += 1
        then = now or datetime(2026, 11, 20, self.hour, tzinfo=UTC)
        return Push(self.registry, self.registry.tags(), release, now=lambda: then)

    def push(
        self,
        content: str = "one",
        release: str | None = None,
        image_id: str = "",
        now: datetime | None = None,
    ) -> PushedImage:
        candidate = self.candidate(content, image_id)
        session = self.session(release, now)
        self.registry.calls.clear()
        return session.push(candidate, lambda tag: self.upload(content, tag), documents)

    def upload(self, content: str, tag: str) -> str:
        self.registry.calls.append("upload")
        self.registry.before("upload")
        return place_image(self.registry, content, tag)

    def at(self, call: str, action: Callable[[], object]) -> None:
        """Do something once, just before a call to the registry."""

        def before(found: str) -> None:
            if found == call:
                self.registry.before = lambda _: None
                action()

        self.registry.before = before

    def writes(self) -> list[str]:
        calls = self.registry.calls
        return [one for one in calls if one.startswith(("upload", "put ")) and "blob" not in one]

    def digests(self, *tags: str) -> set[str]:
        """Return where these tags are."""
        return {self.registry.tagged[tag] for tag in tags}

    def put(self, record: Record) -> None:
        put_record(self.registry, record, self.registry.manifests[record.digest])

    def record(self) -> Record:
        found = read_record(self.registry, FIRST)
        assert found
        return found
