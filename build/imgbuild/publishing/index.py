"""All records of a repository in one document, so that a reader asks once.

Nothing is locked. Who publishes an image puts its record first; then it writes the index of exactly
the records that are there, and looks again: were others there in the end than it wrote, or had one
another digest, it does so anew. So whoever writes last has seen every record as it was at its own
last look, and whoever wrote one later is still to come.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from imgbuild.errors import ImgbuildError, MachineError
from imgbuild.matrix.tags import INDEX_TAG, RECORD_SUFFIX, record_tag
from imgbuild.parallel import in_parallel
from imgbuild.publishing.artifact import DamagedError, get_artifact, put_artifact
from imgbuild.publishing.record import Record, record_of, verified_record
from imgbuild.registry.client import RegistryClient

ARTIFACT_TYPE = "application/vnd.imgbuild.index.v1+json"
SCHEMA = 1
#: Each time, another image was published in between.
ROUNDS = 20
_WORKERS = 8

Say = Callable[[str], None]


@dataclass(frozen=True)
class Index:
    """What is published in one repository, the latest last.

    ``digests`` are those of the records' own manifests, by immutable tag, as they were when they
    were read. None is known of what an imgbuild wrote that did not keep them.
    """

    records: tuple[Record, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def holders(self) -> Mapping[str, Record]:
        """Where each moving tag points, by tag: to the image that was published last with it."""
        return {tag: record for record in self.records for tag in record.moving}

    def moving(self, record: Record) -> tuple[str, ...]:
        """Return those of a record's moving tags that no later image has taken."""
        return tuple(tag for tag in record.moving if self.holders[tag].tag == record.tag)

    def tells(self, record: Record) -> bool:
        """Return whether it says of an image what the image's record says."""
        return record.brief in self.records

    def as_json(self) -> dict[str, Any]:
        """Return the document; ``moving`` is for readers that are no imgbuild."""
        return {
            "schema": SCHEMA,
            "records": [record.as_json() for record in self.records],
            "moving": {tag: record.tag for tag, record in sorted(self.holders.items())},
            "digests": dict(self.digests),
        }


@dataclass(frozen=True)
class Change:
    """What an index has now and had not before: ``added``, ``changed`` or ``removed`` tags."""

    what: str
    tag: str


def index_of(records: Iterable[Record], digests: Mapping[str, str | None] | None = None) -> Index:
    """Return the index of some records, in whatever order they come.

    The suites' reports are in the records alone. Of ``digests`` are kept those of the records.
    """
    brief = tuple(sorted((record.brief for record in records), key=lambda record: record.age))
    known = {record.tag: (digests or {}).get(record.tag) for record in brief}
    return Index(brief, {tag: digest for tag, digest in known.items() if digest})


def read_index(registry: RegistryClient) -> Index | None:
    """Return the index as it is in the registry, or ``None`` if nothing was published.

    Raises:
        DamagedError: it cannot be read; the message names what to do.

    """
    try:
        artifact = get_artifact(registry, INDEX_TAG, ARTIFACT_TYPE)
        return None if artifact is None else _parsed(artifact.document())
    except DamagedError as error:
        raise DamagedError(
            f"{_damage(registry, error)} Write it anew from what the registry holds: "
            f"imgbuild published --from {registry.name} --rebuild."
        ) from error


def update_index(registry: RegistryClient, say: Say, written: Collection[str] = ()) -> Index:
    """Let the index be of exactly the records that are there; return it.

    To be called after every push, also of what was there already: another may have been stopped
    before it came to this. What is in the index is not read again while its digest is the same,
    which HEAD tells; ``written`` are immutable tags whose records surely have another one now. A
    damaged index is written anew. ``say`` is told of records that do not fit their images; they are
    left out.

    Raises:
        MachineError: others publish faster than this can follow.

    """
    return _settled(registry, lambda: _known(registry, say), say, written)


def rebuild_index(registry: RegistryClient, say: Say) -> tuple[Index, tuple[Change, ...]]:
    """Write the index anew from the tags, records and images alone; return it, and what changed.

    As `update_index`, but nothing that the old index says is believed, and it need not be readable.
    """
    before = _old_if_readable(registry, say)
    after = _settled(registry, lambda: None, say)
    return after, changes(before or Index(), after)


def changes(before: Index, after: Index) -> tuple[Change, ...]:
    """Return how two indexes differ, by tag."""
    old, new = ({record.tag: record for record in one.records} for one in (before, after))
    return tuple(
        Change("added" if tag not in old else "changed" if tag in new else "removed", tag)
        for tag in sorted(old.keys() | new.keys())
        if old.get(tag) != new.get(tag)
    )


def _settled(
    registry: RegistryClient,
    known: Callable[[], Index | None],
    say: Say,
    written: Collection[str] = (),
) -> Index:
    tags, there = _recorded(registry), dict[str, str | None]()
    for _ in range(ROUNDS):
        before = known()
        old = _unchanged(before or Index(), there, written)
        index, seen = _made(registry, old, tags, say)
        if not _is_same(index, before) and (index.records or registry.head(INDEX_TAG)):
            put_artifact(registry, INDEX_TAG, ARTIFACT_TYPE, index.as_json())
        tags = _recorded(registry)
        there, written = _digests(registry, tags), ()
        if there == seen:
            return index
    raise MachineError(
        f"{registry.name}: its index was changed by others {ROUNDS} times while it was written. "
        "What was pushed is there; run this again when less is published at once."
    )


def _unchanged(
    index: Index, there: Mapping[str, str | None], written: Collection[str]
) -> dict[str, tuple[Record, str]]:
    """Return the records, by tag, that need not be read again, with their digests.

    ``there`` are the digests that the registry told, of each record or of none.
    """
    digests = ((record, index.digests.get(record.tag)) for record in index.records)
    return {
        record.tag: (record, digest)
        for record, digest in digests
        if digest and record.tag not in written and there.get(record.tag, digest) == digest
    }


def _made(
    registry: RegistryClient, old: Mapping[str, tuple[Record, str]], tags: Sequence[str], say: Say
) -> tuple[Index, dict[str, str | None]]:
    """Return the index of the images with these tags, and the digests of all their records.

    ``old`` records are not read again. Digests are asked for before the records are read: who
    writes one in between is seen at the next look.
    """
    missing = [tag for tag in tags if tag not in old]
    seen = {tag: old[tag][1] for tag in tags if tag in old} | _digests(registry, missing)
    read = in_parallel(lambda tag: _readable(registry, tag, say), missing, _WORKERS)
    kept = [old[tag][0] for tag in tags if tag in old]
    return index_of([*kept, *filter(None, read)], seen), seen


def _is_same(index: Index, before: Index | None) -> bool:
    return before is not None and (index, index.digests) == (before, before.digests)


def _digests(registry: RegistryClient, tags: Sequence[str]) -> dict[str, str | None]:
    """Return the digests of the records of these immutable tags. Nothing is read."""
    found = in_parallel(lambda tag: registry.head(record_tag(tag)), tags, _WORKERS)
    return dict(zip(tags, found, strict=True))


def _readable(registry: RegistryClient, tag: str, say: Say) -> Record | None:
    try:
        return verified_record(registry, tag)
    except DamagedError as error:
        say(f"Left out of the index: {error}")
        return None


def _known(registry: RegistryClient, say: Say) -> Index | None:
    """Return the index before it is written anew; one that is damaged tells nothing."""
    try:
        return read_index(registry)
    except DamagedError as error:
        say(_damage(registry, error.__cause__ or error))
        return None


def _old_if_readable(registry: RegistryClient, say: Say) -> Index | None:
    """Return the index as `_known`, or nothing if it cannot be read for whatever reason."""
    try:
        return _known(registry, say)
    except ImgbuildError as error:
        say(f"The index {registry.name}:{INDEX_TAG} cannot be read: {error}")
        return None


def _damage(registry: RegistryClient, error: BaseException) -> str:
    return f"The index {registry.name}:{INDEX_TAG} is damaged: {str(error).rstrip('.')}."


def _recorded(registry: RegistryClient) -> tuple[str, ...]:
    """Return the immutable tags that have a record."""
    return tuple(
        tag.removesuffix(RECORD_SUFFIX) for tag in registry.tags() if tag.endswith(RECORD_SUFFIX)
    )


def _parsed(document: Mapping[str, Any]) -> Index:
    schema, records = document.get("schema"), document.get("records")
    digests = document.get("digests")
    if schema != SCHEMA or not isinstance(records, list):
        raise DamagedError(f"it is of schema {schema!r}; this imgbuild reads {SCHEMA}")
    known = digests if isinstance(digests, Mapping) else {}
    return index_of(map(record_of, records), {tag: str(known[tag]) for tag in known})
