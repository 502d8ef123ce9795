"""The moving tags when several publish at once: the image that was published last has them.

A push looks at a tag before it moves it, but a registry cannot be told to move it only if it is
still so. Between the two another push may move it, too; one that moves several tags may then have
some of them. So after the index was written, which tells every record that is there, a push looks
whether it has taken a tag of a later image, or of the one that has its record by now. Each does so
after its last move, and each record is there before its tags move: whoever comes last sees both.
Then it looks where its tags are: someone may have moved them who asks nobody.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from imgbuild.parallel import in_parallel
from imgbuild.publishing.index import Index, update_index
from imgbuild.publishing.record import Record
from imgbuild.registry.client import RegistryClient

_WORKERS = 8
Say = Callable[[str], None]


def settled(
    registry: RegistryClient, index: Index, records: Sequence[Record], say: Say, *, roll_back: bool
) -> dict[str, str]:
    """Give back what is another image's; return what is wrong then, by image.

    To be called when the records are in the index and no tag is to be moved any more. ``say`` is
    told of the tags that were given back; to ``roll_back`` gives none back.
    """
    for tag in () if roll_back else give_back_tags(registry, index, records):
        say(f"{tag} stays with another image, which was published meanwhile.")
    if not astray(registry, index, records):
        return {}
    # A record that was put since the index was written may say whose the tag is.
    return astray(registry, update_index(registry, say), records)


def give_back_tags(
    registry: RegistryClient, index: Index, records: Iterable[Record]
) -> tuple[str, ...]:
    """Move the tags that these records' images have to other images whose tags they are.

    Returns:
        The tags that were moved.

    """
    return tuple(
        tag
        for record in records
        for tag in record.moving
        if _give_back(registry, index, tag, record)
    )


def _give_back(registry: RegistryClient, index: Index, tag: str, record: Record) -> bool:
    holder = index.holders.get(tag)
    if holder is None or holder.digest == record.digest:
        return False
    if holder.age <= record.age and not _winner(index, record):
        return False
    rightful = registry.manifest(holder.digest) if registry.head(tag) == record.digest else None
    if rightful is None:
        return False
    registry.put_manifest(tag, rightful.content, rightful.media_type)
    return True


def astray(registry: RegistryClient, index: Index, records: Sequence[Record]) -> dict[str, str]:
    """Return, by image, what is wrong with the tags of these records. Nothing is read.

    A tag must be at the image of the record, or at that which the index says.
    """
    found = in_parallel(lambda one: tuple(_faults(registry, index, one)), records, _WORKERS)
    return {
        record.image: "\n".join(faults)
        for record, faults in zip(records, found, strict=True)
        if faults
    }


def _faults(registry: RegistryClient, index: Index, record: Record) -> Iterator[str]:
    winner = _winner(index, record)
    if winner:
        yield lost_text(registry, record.tag, winner.digest, record.digest)
        return
    for tag in record.moving:
        now, holder = registry.head(tag), index.holders.get(tag, record)
        if now not in {record.digest, holder.digest}:
            yield (
                f"{registry.name}:{tag} was moved by someone else while this push ran, to "
                f"{now or 'nothing'}. It was left so; {record.tag} itself is complete. Run again "
                f"to move it to {holder.digest} ({holder.tag})."
            )


def _winner(index: Index, record: Record) -> Record | None:
    """Return the record of another image that is there in place of this one."""
    same = (one for one in index.records if one.tag == record.tag)
    return next((one for one in same if one.digest != record.digest), None)


def lost_text(registry: RegistryClient, tag: str, theirs: str, mine: str) -> str:
    """Say that of two images pushed under one tag at once the other one is published."""
    return (
        f"{registry.name}:{tag} was published by someone else at the same time: its record says "
        f"{theirs}, and here it is {mine}. Run again; the image gets the next release, unless "
        "--release asks for this one."
    )
