"""The schema of the rules and of the tags in ``matrix.yaml``."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from imgbuild.core.scalars import Name, Prose, Specifier, Version
from imgbuild.core.yaml_file import Section

#: The parts of a tag; `imgbuild.matrix.tags` spells each. A misspelt part is a fault of the file.
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
    "release",
]

#: Pins that a rule can judge.
Judged = Literal["python", "mpi", "horovod", "os", "cuda", "cudnn", "nccl"]

#: Pins, and what the matrix's tables hold for the pinned value: ``TABLE.FIELD`` is that field of
#: the entry that the pin names, and ``wheel.FACT`` what was read out of the TensorFlow wheel. A
#: misspelt fact is a fault of the file.
Fact = Literal[
    "tensorflow",
    "tensorflow.cudnn",
    "wheel.compiler",
    "wheel.pythons",
    "wheel.platform_glibc",
    "wheel.cuda",
    "python.wheel_tag",
    "python.os",
    "horovod",
    "horovod.tensorflow",
    "mpi.os",
    "os",
    "os.glibc",
    "os.compilers",
    "cuda",
    "cuda.driver",
    "cuda.cudnn",
    "cuda.nccl",
    "cuda.os",
]

#: How a rule compares a value; `imgbuild.matrix.rules` has one function for each.
Check = Literal[
    "equal", "one-of", "range", "at-least", "same-major-minor-at-least", "release-one-of"
]


class Rule(Section):
    """One thing that must hold between the pins of an image.

    ``value`` is what is compared; by default the judged pin itself. It is compared with the
    ``fact``, or with the rule's own ``minimum`` for the judged pin. ``where`` narrows the rule to
    images whose facts are in the given ranges; images without such a pin or fact are not judged.
    """

    name: Name
    judges: Judged
    says: Prose
    check: Check
    value: Fact | None = None
    fact: Fact | None = None
    minimum: dict[Version, Version] | None = None
    where: dict[Fact, Specifier] = Field(default_factory=dict)
    source: Prose
    #: The consequence for an image that breaks it; part of the error.
    otherwise: Prose

    @model_validator(mode="after")
    def _check_comparison(self) -> Self:
        if (self.fact is None) == (self.minimum is None):
            raise ValueError("a rule has either 'fact' or 'minimum'")
        return self


def _drop_documented(parts: object) -> object:
    """Drop a part of older matrices, which `verify --rebuild` reads; no image has it."""
    return [part for part in parts if part != "documented"] if isinstance(parts, list) else parts


Parts = Annotated[tuple[Part, ...], Field(min_length=1), BeforeValidator(_drop_documented)]


class Tags(Section):
    """The tags of every image: one that stays, for releases, and those that move.

    Images that are built here have those that move. A tag is its parts joined by ``-``; a part that
    does not apply to an image is left out, and so is the stack of ``defaults``.
    """

    immutable: Parts
    moving: tuple[Parts, ...] = Field(min_length=1)
