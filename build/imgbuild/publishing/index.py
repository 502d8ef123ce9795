"""All records of a repository in one document, so that a reader asks once.

Nothing is locked. Who publishes an image puts its record first; then it writes the index of exactly
the records that are there, and looks again: were others there in the end than it wrote, it does so
anew. So whoever writes last has listed every record that was there before its own last look, and
the writer of any later record is still to come.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from imgbuild.errors import MachineError
from imgbuild.matrix.tags import INDEX_TAG, RECORD_SUFFIX
from imgbuild.parallel import in_parallel
from imgbuild.publishing.artifact import DamagedError, get_artifact, put_artifact
from imgbuild.publishing.record import Record, record_of, verified_record
from imgbuild.registry.protocol import Registry

ARTIFACT_TYPE = "application/vnd.imgbuild.index.v1+json"
SCHEMA = 1
#: Each time, another image was published in between.
ROUNDS = 20
_WORKERS = 8

Say = Callable[[str], None]


@dataclass(frozen=True)
class Index:
    """What is published in one repository, the latest last."""

    records: tuple[Record, ...] = ()

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
        }


@dataclass(frozen=True)
class Change:
    """What an index has now and had not before: ``added``, ``changed`` or ``removed`` tags."""

    what: str
    tag: str


def index_of(records: Iterable[Record]) -> Index:
    """Return the index of some records, in whatever order they come.

    The suites' reports are in the records alone.
    """
    brief = (record.brief for record in records)
    return Index(tuple(sorted(brief, key=lambda record: record.age)))


def read_index(registry: Registry) -> Index | None:
    """Return the index as it is in the registry, or ``None`` if nothing was published.

    Raises:
        DamagedError: it cannot be read; the message names what to do.

    """
    try:
        artifact = get_artifact(registry, INDEX_TAG, ARTIFACT_TYPE)
        return None if artifact is None else _parsed(artifact.document)
    except DamagedError as error:
        raise DamagedError(
            f"{_damage(registry, error)} Write it anew from what the registry holds: "
            f"imgbuild published --from {registry.name} --rebuild."
        ) from error


def update_index(registry: Registry, say: Say, written: Collection[str] = ()) -> Index:
    """Let the index be of exactly the records that are there; return it.

    To be called after every push, also of what was there already: another may have been stopped
    before it came to this. What is in the index is not read again, except for the immutable tags
    whose records were ``written`` just now. A damaged index is written anew. ``say`` is told of
    records that do not fit their images; they are left out.

    Raises:
        MachineError: others publish faster than this can follow.

    """
    return _settled(registry, lambda: _known(registry, say), say, written)


def rebuild_index(registry: Registry, say: Say) -> tuple[Index, tuple[Change, ...]]:
    """Write the index anew from the tags, records and images alone; return it, and what changed.

    As `update_index`, but nothing that the old index says is believed.
    """
    before = _known(registry, say)
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
    registry: Registry,
    known: Callable[[], Index | None],
    say: Say,
    written: Collection[str] = (),
) -> Index:
    tags = _recorded(registry)
    for _ in range(ROUNDS):
        before = known()
        old = {one.tag: one for one in before.records if one.tag not in written} if before else {}
        index = _made(registry, old, tags, say)
        if index != before and (index.records or registry.head(INDEX_TAG)):
            put_artifact(registry, INDEX_TAG, ARTIFACT_TYPE, index.as_json())
        after = _recorded(registry)
        if after == tags:
            return index
        tags = after
    raise MachineError(
        f"{registry.name}: its index was changed by others {ROUNDS} times while it was written. "
        "What was pushed is there; run this again when less is published at once."
    )


def _made(registry: Registry, old: Mapping[str, Record], tags: Sequence[str], say: Say) -> Index:
    """Return the index of the images with these tags; ``old`` records are not read again."""
    missing = [tag for tag in tags if tag not in old]
    read = in_parallel(lambda tag: _readable(registry, tag, say), missing, _WORKERS)
    kept = [old[tag] for tag in tags if tag in old]
    return index_of([*kept, *(record for record in read if record)])


def _readable(registry: Registry, tag: str, say: Say) -> Record | None:
    try:
        return verified_record(registry, tag)
    except DamagedError as error:
        say(f"Left out of the index: {error}")
        return None


def _known(registry: Registry, say: Say) -> Index | None:
    """Return the index before it is written anew; one that is damaged tells nothing."""
    try:
        return read_index(registry)
    except DamagedError as error:
        say(_damage(registry, error.__cause__ or error))
        return None


def _damage(registry: Registry, error: BaseException) -> str:
    return f"The index {registry.name}:{INDEX_TAG} is damaged: {str(error).rstrip('.')}."


def _recorded(registry: Registry) -> tuple[str, ...]:
    """Return the immutable tags that have a record."""
    return tuple(
        tag.removesuffix(RECORD_SUFFIX) for tag in registry.tags() if tag.endswith(RECORD_SUFFIX)
    )


def _parsed(document: Mapping[str, Any]) -> Index:
    schema, records = document.get("schema"), document.get("records")
    if schema != SCHEMA or not isinstance(records, list):
        raise DamagedError(f"it is of schema {schema!r}; this imgbuild reads {SCHEMA}")
    return index_of(record_of(one) for one in records)
