"""Whether every tag that the index tells of points where it says, and whether it tells of all."""

from imgbuild.matrix.tags import RECORD_SUFFIX, RELEASE
from imgbuild.parallel import in_parallel
from imgbuild.publishing.index import Index
from imgbuild.registry.client import RegistryClient

_WORKERS = 8


def digests(index: Index) -> dict[str, str]:
    """Return what each tag that the index tells of should be, by tag."""
    return {record.tag: record.digest for record in index.records} | {
        tag: record.digest for tag, record in index.holders.items()
    }


def misplaced_tags(registry: RegistryClient, index: Index) -> tuple[str, ...]:
    """Return a sentence for each tag that is not there or is another image's. Nothing is read."""
    wanted = digests(index)
    found = in_parallel(registry.head, list(wanted), _WORKERS)
    return tuple(
        f"{registry.name}:{tag} {f'is {digest}' if digest else 'is not there'}, the index says "
        f"{wanted[tag]}."
        for tag, digest in zip(wanted, found, strict=True)
        if digest != wanted[tag]
    )


def unrecorded_tags(registry: RegistryClient) -> tuple[str, ...]:
    """Return a sentence for each tag with a release in it that has no record beside it."""
    tags = frozenset(registry.tags())
    return tuple(
        f"{registry.name}:{tag} has no record: its push was cut off, or is at work. "
        f"imgbuild push --release {release[0]} of the same image completes it."
        for tag in sorted(tags)
        if (release := RELEASE.search(tag))
        and not tag.endswith(RECORD_SUFFIX)
        and f"{tag}{RECORD_SUFFIX}" not in tags
    )
