"""What the index tells of images that were published before. Pure."""

from dataclasses import dataclass

from imgbuild.publishing.approved import Approved
from imgbuild.publishing.index import Index
from imgbuild.publishing.record import Record


@dataclass(frozen=True)
class History:
    """The records of a repository; ``roll_back`` lets no later one keep its tags."""

    index: Index
    roll_back: bool = False

    def known(self, image: Approved) -> Record | None:
        """Return the index's newest record of this very image.

        Its id is the digest of its configuration, or of its manifest where the engine keeps images
        as containerd does.
        """
        of_it = [
            record
            for record in self.index.records
            if record.image == image.name and image.image_id in {record.image_id, record.digest}
        ]
        return of_it[-1] if of_it else None

    def newer(self, tag: str, digest: str | None, than: Record) -> Record | None:
        """Return the later record of the same image whose digest a moving tag has."""
        if self.roll_back:
            return None
        holder = self.index.holders.get(tag)
        later = holder and holder.image == than.image and holder.age > than.age
        return holder if holder and later and holder.digest == digest else None

    def rolls_back(self, record: Record) -> bool:
        """Return whether an image is published again, since it is to have a later one's tags.

        What was published last has them: so the index and every later push know of it, too.
        """
        holders = [self.index.holders.get(tag) for tag in record.moving]
        return self.roll_back and any(one and one.age > record.age for one in holders)
