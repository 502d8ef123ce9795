"""What ``matrix.yaml`` may say of tags: which parts they are made of, in which order."""

from typing import Literal

from pydantic import Field

from imgbuild.matrix.section import Section

#: What a tag can say; :mod:`imgbuild.matrix.tag_parts` spells each. The set is closed, so that a
#: misspelt part is a fault of the file.
Part = Literal[
    "tensorflow",
    "minor",
    "variant",
    "python",
    "cuda",
    "mpi",
    "os",
    "stack",
    "flavour",
    "documented",
    "release",
]

#: What was published lies beside the images: the record of an image under its immutable tag with
#: this, the index of all records under that tag.
RECORD_SUFFIX = ".record"
INDEX_TAG = "index"


class Tags(Section):
    """The tags that every image is published under: one that stays, and those that move.

    A tag is its parts joined by ``-``; a part of which an image has nothing to say is left out.
    """

    immutable: tuple[Part, ...] = Field(min_length=1)
    moving: tuple[tuple[Part, ...], ...]
