"""An engine in memory that can be cleaned, for unit tests."""

from collections.abc import Sequence

from imgbuild.engine.fake import FakeEngine, carries
from imgbuild.engine.housekeeping import BuildCacheRecord, StoredVolume
from imgbuild.engine.stored import StoredImage


class FakeHousekeeping(FakeEngine):
    """A `Housekeeping` without a daemon. ``used`` are the ids of images that containers have."""

    def __init__(self, images: Sequence[StoredImage] = ()) -> None:
        super().__init__(images)
        self.kept_volumes: list[StoredVolume] = []
        self.records: list[BuildCacheRecord] = []
        self.used: set[str] = set()

    def named(self, repository: str) -> list[StoredImage]:
        """Return the images that have a name in ``repository``."""
        return [
            image
            for image in self.stored.values()
            if any(tag.rpartition(":")[0] == repository for tag in image.tags)
        ]

    def in_use(self, image_id: str) -> bool:
        """Return whether the test said so."""
        return image_id in self.used

    def volumes(self, label: str) -> list[StoredVolume]:
        """Return the volumes with ``label``."""
        return [one for one in self.kept_volumes if carries(one.labels, label)]

    def remove_volume(self, name: str) -> bool:
        """Forget a volume."""
        self.kept_volumes = [one for one in self.kept_volumes if one.name != name]
        return True

    def build_cache(self) -> list[BuildCacheRecord]:
        """Return every record."""
        return list(self.records)

    def remove_build_cache(self, record: str) -> bool:
        """Forget a record that is not in use."""
        self.records = [one for one in self.records if one.id != record or one.in_use]
        return all(one.id != record for one in self.records)

    def empty_build_cache(self) -> None:
        """Forget all that is not in use."""
        self.records = [one for one in self.records if one.in_use]
