"""The moving tags when several publish at once: the image that was published last has them.

A push looks at a tag before it moves it, but a registry cannot be told to move it only if it is
still so. Between the two another push may move it, too; one that moves several tags may then have
some of them. So after the index was written, which tells every record that is there, a push looks
whether it has taken a tag of a later image. Each does so after its last move, and each record is
there before its tags move: whoever comes last sees both.
"""

from collections.abc import Iterable

from imgbuild.publishing.index import Index
from imgbuild.publishing.record import Record
from imgbuild.registry.protocol import Registry


def give_back_tags(registry: Registry, index: Index, records: Iterable[Record]) -> tuple[str, ...]:
    """Move the tags that these records' images have to later images whose tags they are.

    Returns:
        The tags that were moved.

    """
    return tuple(
        tag
        for record in records
        for tag in record.moving
        if _give_back(registry, index.holders.get(tag), tag, record)
    )


def _give_back(registry: Registry, holder: Record | None, tag: str, record: Record) -> bool:
    if holder is None or holder.age <= record.age or registry.head(tag) != record.digest:
        return False
    later = registry.manifest(holder.digest)
    if later is None or holder.digest == record.digest:
        return False
    registry.put_manifest(tag, later.content, later.media_type)
    return True
