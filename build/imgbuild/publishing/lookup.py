"""Whether an image was published already, known by what it was made from."""

from imgbuild.publishing.index import Index
from imgbuild.publishing.record import Record


def find_published(index: Index, image_name: str, input_digest: str) -> Record | None:
    """Return the record of that image with that input digest that was published last."""
    found = [
        record
        for record in index.records
        if (record.image, record.input_digest) == (image_name, input_digest)
    ]
    return found[-1] if found else None
