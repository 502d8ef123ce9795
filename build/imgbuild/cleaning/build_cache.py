"""BuildKit's cache. Its records have no labels, but a cache mount says its own id."""

import re
from collections.abc import Callable, Iterator, Sequence

from imgbuild.cleaning.finding import Finding
from imgbuild.cleaning.kinds import Kind
from imgbuild.engine.client import Engine
from imgbuild.engine.types import CACHE_MOUNT, BuildCacheRecord

#: How BuildKit describes a cache mount of the Dockerfiles (`id=imgbuild-…`).
_MOUNT = re.compile(r'cached mount .* with id "/(imgbuild-[A-Za-z0-9._-]+)"', re.DOTALL)


def find_build_cache(engine: Engine) -> Iterator[Finding]:
    """Yield imgbuild's own cache mounts, one each, and the whole cache as one."""
    records = engine.build_cache()
    for record in records:
        name = mount_id(record)
        if name:
            kept = "a build uses it now" if record.in_use else None
            why = "packages, fetched again when needed"
            yield Finding(
                *(Kind.CACHE_MOUNTS, name, why, _remover(engine, record.id)),
                *(record.size, record.used, kept),
            )
    if records:
        yield _whole(engine, records)


def mount_id(record: BuildCacheRecord) -> str:
    """Return the id of a cache mount of imgbuild's; nothing for any other record."""
    found = _MOUNT.fullmatch(record.description) if record.kind == CACHE_MOUNT else None
    return found[1] if found else ""


def _remover(engine: Engine, record: str) -> Callable[[], bool]:
    return lambda: engine.remove_build_cache(record)


def _whole(engine: Engine, records: Sequence[BuildCacheRecord]) -> Finding:
    def remove() -> bool:
        engine.empty_build_cache()
        return True

    size = sum(record.size for record in records)
    why = "of every project on this engine; the next builds start from nothing"
    return Finding(Kind.BUILD_CACHE, f"{len(records)} records", why, remove, size)
