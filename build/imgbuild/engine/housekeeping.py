"""What only `imgbuild clean` asks of an engine: volumes, the build cache, who uses an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from imgbuild.engine import answers
from imgbuild.engine.client import DockerEngine
from imgbuild.engine.protocol import Engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imgbuild.engine.stored import StoredImage

#: Removing gigabytes of build cache is one silence of the engine.
PRUNE_SECONDS = 900
#: The kind of record that a ``RUN --mount=type=cache`` has in BuildKit's cache.
CACHE_MOUNT = "exec.cachemount"


class StoredVolume(NamedTuple):
    """One volume. ``created`` is in seconds since 1970."""

    name: str
    labels: Mapping[str, str]
    created: int = 0


class BuildCacheRecord(NamedTuple):
    """One record of BuildKit's cache; ``size`` in bytes, ``used`` in seconds since 1970.

    BuildKit's records have no labels. The description of a cache mount ends with its id.
    """

    id: str
    kind: str
    description: str
    size: int
    in_use: bool = False
    used: int = 0


class Housekeeping(Engine, Protocol):
    """An engine whose volumes and build cache can be looked at and removed."""

    def named(self, repository: str) -> list[StoredImage]:
        """Return the images that have a name in ``repository``."""

    def in_use(self, image_id: str) -> bool:
        """Return whether a container, running or not, was made from the image or a child of it."""

    def volumes(self, label: str) -> list[StoredVolume]:
        """Return the volumes that have ``label``."""

    def remove_volume(self, name: str) -> bool:
        """Remove a volume that no container has; return whether it is gone."""

    def build_cache(self) -> list[BuildCacheRecord]:
        """Return every record of BuildKit's cache."""

    def remove_build_cache(self, record: str) -> bool:
        """Remove one record of BuildKit's cache; return whether it is gone."""

    def empty_build_cache(self) -> None:
        """Remove all of BuildKit's cache that no build is using, whoever's it is."""


class DockerHousekeeping(DockerEngine):
    """The real engine as a `Housekeeping`."""

    def named(self, repository: str) -> list[StoredImage]:
        """Return the images that have a name in ``repository``."""
        with self._api() as api:
            return [answers.listed_image(one) for one in api.images(name=repository)]

    def in_use(self, image_id: str) -> bool:
        """Ask for containers by ``ancestor``, which children of the image match too."""
        with self._api() as api:
            return bool(api.containers(all=True, filters={"ancestor": image_id}))

    def volumes(self, label: str) -> list[StoredVolume]:
        """Return the volumes that have ``label``."""
        with self._api() as api:
            listed = api.volumes(filters={"label": [label]}).get("Volumes") or ()
            return [
                StoredVolume(
                    str(one["Name"]),
                    answers.labels_of(one.get("Labels")),
                    answers.seconds_of(str(one.get("CreatedAt") or "")),
                )
                for one in listed
            ]

    def remove_volume(self, name: str) -> bool:
        """Remove a volume that no container has; return whether it is gone."""
        from docker.errors import APIError, NotFound  # noqa: PLC0415

        with self._api() as api:
            try:
                api.remove_volume(name)
            except NotFound:
                return True
            except APIError as error:
                if error.status_code == 409:  # in use
                    return False
                raise
        return True

    def build_cache(self) -> list[BuildCacheRecord]:
        """Ask for the disk usage of the build cache alone: images are not summed up."""
        with self._api(PRUNE_SECONDS) as api:
            url = f"{api.base_url}/v{api.api_version}/system/df"  # docker-py's df() has no type
            answer = api.get(url, params={"type": "build-cache"}, timeout=PRUNE_SECONDS)
            answer.raise_for_status()
            return [_record(one) for one in answer.json().get("BuildCache") or ()]

    def remove_build_cache(self, record: str) -> bool:
        """Remove one record; one that is in use, or has children in use, stays."""
        with self._api(PRUNE_SECONDS) as api:
            answer = api.prune_builds(filters={"id": record}, all=True)  # type: ignore[arg-type]
        return record in (answer.get("CachesDeleted") or ())

    def empty_build_cache(self) -> None:
        """Remove all of BuildKit's cache that no build is using, whoever's it is."""
        with self._api(PRUNE_SECONDS) as api:
            api.prune_builds(all=True)


def _record(answer: answers.Answer) -> BuildCacheRecord:
    return BuildCacheRecord(
        str(answer["ID"]),
        str(answer.get("Type", "")),
        str(answer.get("Description", "")),
        int(answer.get("Size") or 0),
        in_use=bool(answer.get("InUse")),
        used=answers.seconds_of(str(answer.get("LastUsedAt") or answer.get("CreatedAt") or "")),
    )
