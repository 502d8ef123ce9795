"""What a compatibility rule of ``matrix.yaml`` may say. :mod:`imgbuild.rules` judges by them."""

from typing import Literal, Self

from pydantic import Field, model_validator

from imgbuild.matrix.section import Section
from imgbuild.values import Name, Prose, Specifier, Version

#: Pins that a rule can find at fault.
Judged = Literal["python", "mpi", "horovod", "os", "cuda", "cudnn", "nccl"]

#: Pins, and what the matrix's tables know of the pinned value: ``TABLE.FIELD`` is that field of
#: the entry that the pin names. The set is closed, so that a misspelt fact is a fault of the file.
Fact = Literal[
    "tensorflow",
    "tensorflow.compiler",
    "tensorflow.pythons",
    "tensorflow.glibc",
    "tensorflow.gpu.cuda",
    "tensorflow.gpu.cudnn",
    "python.wheel_tag",
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

#: How a value is compared; :mod:`imgbuild.rules.checks` has one function each.
Check = Literal[
    "equal", "one-of", "range", "at-least", "same-major-minor-at-least", "release-one-of"
]


class Rule(Section):
    """One thing that must hold between the pins of an image.

    ``value`` is what is compared, the judged pin itself if left out. What it is compared with is
    the ``fact``, or the rule's own ``minimum`` for the judged pin. ``where`` narrows the rule to
    images whose facts are in the given ranges; an image that has no such pin or fact is not judged
    either.
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
    #: What happens to an image that breaks it; said before one is built knowingly.
    otherwise: Prose

    @model_validator(mode="after")
    def _compares_with_one_thing(self) -> Self:
        if (self.fact is None) == (self.minimum is None):
            raise ValueError("a rule has either 'fact' or 'minimum'")
        return self
