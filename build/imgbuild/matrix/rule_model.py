"""The schema of ``rules`` and ``tags`` in ``matrix.yaml``."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from imgbuild.core.scalars import Name, Prose, Specifier, Version
from imgbuild.core.yaml_file import Section

#: The parts of a tag. `imgbuild.matrix.images.parts_of` has the text of each.
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

#: The pins that a rule can check.
Judged = Literal["python", "mpi", "horovod", "os", "cuda", "cudnn", "nccl"]

#: The values that a rule can compare. ``COMPONENT`` is a pin, ``COMPONENT.FIELD`` a field of the
#: table entry that the pin names, and ``wheel.FACT`` a fact about the TensorFlow wheel.
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

#: The comparisons of rules. `imgbuild.matrix.rules.COMPARISONS` implements them.
Check = Literal[
    "equal", "one-of", "range", "at-least", "same-major-minor-at-least", "release-one-of"
]


class Rule(Section):
    """A condition that the pins of an image must meet.

    The rule compares ``value``, by default the judged pin itself, with ``fact``, or with the entry
    of ``minimum`` for the judged pin. It only applies to images whose facts are in the ranges of
    ``where``, and to images that have all these pins and facts.
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
    #: What happens to an image that breaks the rule. The error message contains it.
    otherwise: Prose

    @model_validator(mode="after")
    def _check_comparison(self) -> Self:
        if (self.fact is None) == (self.minimum is None):
            raise ValueError("a rule needs either 'fact' or 'minimum', and not both")
        return self


def _drop_documented(parts: object) -> object:
    """Drop a part of older matrices, which `verify --rebuild` reads; no image has it."""
    return [part for part in parts if part != "documented"] if isinstance(parts, list) else parts


Parts = Annotated[tuple[Part, ...], Field(min_length=1), BeforeValidator(_drop_documented)]


class Tags(Section):
    """The tags of every image: an immutable tag, which names a release, and moving tags.

    A local build gets only the moving tags. The parts of a tag are joined by ``-``. A part that
    does not apply to the image is omitted, and so is the default stack.
    """

    immutable: Parts
    moving: tuple[Parts, ...] = Field(min_length=1)
