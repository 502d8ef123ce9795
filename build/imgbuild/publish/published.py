"""List what is published in a repository: its tags and records, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from imgbuild.matrix.tags import INPUT_PREFIX, RECORD_SUFFIX, RELEASE, input_tag
from imgbuild.parallel import in_parallel
from imgbuild.publish.record import Record, read_record
from imgbuild.registry.repository import DamagedError
from imgbuild.registry.repository_client import RegistryClient

_WORKERS = 8


@dataclass(frozen=True)
class PublishedRepository:
    """What a repository holds: ``records``, the latest last, and the digests of their tags.

    ``damaged`` are sentences on what should be a record and cannot be read.
    """

    name: str
    records: tuple[Record, ...]
    digests: Mapping[str, str]
    tags: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def whole(self) -> tuple[Record, ...]:
        """The records whose image is there under its immutable tag."""
        return tuple(one for one in self.records if self.digests.get(one.tag) == one.digest)

    def moving(self, record: Record) -> tuple[str, ...]:
        """Return the moving tags that point to an image now."""
        return tuple(tag for tag in record.moving if self.digests.get(tag) == record.digest)

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each record without its tag, and each tag of an unknown image."""
        yield from self.damaged
        for record in self.records:
            yield from self._compare(record.tag, record)
        known = {record.digest for record in self.whole}
        for tag, record in self._latest.items():
            if self.digests.get(tag) not in known:
                yield from self._compare(tag, record)

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each tag that is right, but may surprise."""
        known = {record.digest: record for record in self.whole}
        for tag, record in self._latest.items():
            found = known.get(self.digests.get(tag, ""))
            if found and found.digest != record.digest:
                yield (
                    f"{self.name}:{tag} is at {found.tag}, not at the later {record.tag}: it was "
                    f"moved back, or a push was cut off. Pushing {record.image} completes it."
                )
        for tag in self.tags:
            release = RELEASE.search(tag)
            if release and not tag.endswith(RECORD_SUFFIX) and tag not in self._recorded:
                yield (
                    f"{self.name}:{tag} has no record: its push was cut off, or is running. "
                    f"imgbuild push --release {release[0]} of the same image completes it."
                )

    @cached_property
    def _latest(self) -> Mapping[str, Record]:
        """The image that was published last with each moving tag."""
        return {tag: record for record in self.records for tag in record.moving}

    @cached_property
    def _recorded(self) -> frozenset[str]:
        ends = (tag for tag in self.tags if tag.endswith(RECORD_SUFFIX))
        return frozenset(tag.removesuffix(RECORD_SUFFIX) for tag in ends)

    def _compare(self, tag: str, record: Record) -> Iterator[str]:
        found = self.digests.get(tag)
        if found != record.digest:
            there = f"is {found}" if found else "is not there"
            yield (
                f"{self.name}:{tag} {there}, but the record of {record.tag} says {record.digest}."
            )


def read_published(registry: RegistryClient) -> PublishedRepository:
    """Return what is published; an empty repository is not an error."""
    tags = registry.tags()
    found = in_parallel(lambda tag: _record(registry, tag), _immutable(tags), _WORKERS)
    records = sorted((one for one in found if isinstance(one, Record)), key=lambda one: one.age)
    named = {tag for record in records for tag in (record.tag, *record.moving)}
    there = sorted(named.intersection(tags))
    heads = in_parallel(registry.head, there, _WORKERS)
    digests = {tag: digest for tag, digest in zip(there, heads, strict=True) if digest}
    damaged = tuple(one for one in found if isinstance(one, str))
    return PublishedRepository(registry.name, tuple(records), digests, tags, damaged)


def published_inputs(registry: RegistryClient) -> frozenset[str]:
    """Return the input tags of all that is published.

    Earlier versions set no such tags: of a repository without any, the records are read.
    """
    tags = registry.tags()
    found = frozenset(tag for tag in tags if tag.startswith(INPUT_PREFIX))
    if found or not _immutable(tags):
        return found
    return frozenset(input_tag(one.input_digest) for one in read_published(registry).whole)


def _immutable(tags: Sequence[str]) -> list[str]:
    return [tag.removesuffix(RECORD_SUFFIX) for tag in tags if tag.endswith(RECORD_SUFFIX)]


def _record(registry: RegistryClient, tag: str) -> Record | str | None:
    try:
        return read_record(registry, tag)
    except DamagedError as error:
        return str(error)
