"""The kinds of thing that can be cleaned, and which of them are without being asked for."""

from enum import StrEnum


class Kind(StrEnum):
    """What a thing is. Caches have one kind more each: ``cache/FOLDER``."""

    CONTAINERS = "containers"
    NETWORKS = "networks"
    VOLUMES = "volumes"
    NAMES = "names"
    DANGLING = "dangling"
    OLD = "old"
    STANDINS = "standins"
    IMAGES = "images"
    BASES = "bases"
    CACHE_FILES = "cache-files"
    CACHE_MOUNTS = "cache-mounts"
    BUILD_CACHE = "build-cache"
    CACHE = "cache"
    WORK = "work"
    LOGS = "logs"
    REPORTS = "reports"
    LOCKS = "locks"


#: What each kind is, for ``--help`` and the documentation.
MEANING: dict[Kind, str] = {
    Kind.CONTAINERS: "containers that killed test runs left",
    Kind.NETWORKS: "their networks",
    Kind.VOLUMES: "their volumes",
    Kind.NAMES: "names in a registry that killed pushes left on images",
    Kind.DANGLING: "nameless images that are not what the checkout's matrix would build now",
    Kind.OLD: "named images beside a newer one of the same image",
    Kind.STANDINS: "images for tests, with stand-ins in place of real upstreams",
    Kind.IMAGES: "all images that imgbuild named",
    Kind.BASES: "base images that imgbuild made and no image of its is built on",
    Kind.CACHE_FILES: "files for a cache in a registry, which killed builds left as images",
    Kind.CACHE_MOUNTS: "packages that builds keep in the engine (cache mounts imgbuild-*)",
    Kind.BUILD_CACHE: "the engine's whole build cache, of other projects too",
    Kind.CACHE: "folders of the cache on disk; cache/FOLDER is one of them",
    Kind.WORK: "temporary folders of processes that were killed",
    Kind.LOGS: "logs older than 30 days",
    Kind.REPORTS: "verdicts, older than 30 days, of images that the engine no longer has",
    Kind.LOCKS: "lock files that no process holds",
}
#: What is cleaned without being asked for: nothing of it is of use to anyone.
DEFAULT = frozenset(
    {
        *(Kind.CONTAINERS, Kind.NETWORKS, Kind.VOLUMES, Kind.DANGLING, Kind.CACHE_FILES),
        *(Kind.NAMES, Kind.WORK, Kind.LOGS, Kind.REPORTS, Kind.LOCKS),
    }
)


def wanted(kind: str, chosen: frozenset[str]) -> bool:
    """Return whether a kind is chosen: by its name, or as one of all caches."""
    return kind in chosen or kind.partition("/")[0] in chosen
