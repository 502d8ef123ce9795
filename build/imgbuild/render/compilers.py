"""Which g++ compiles Horovod against an image's TensorFlow.

g++ 4's ``std::function`` has another calling convention than that of 5 and later, so an extension
of a TensorFlow built by g++ 4 needs that compiler, or the newer one with a changed header
(docs/horovod.md).
"""

from dataclasses import dataclass

from imgbuild.matrix.images import Image, minor_of


@dataclass(frozen=True)
class Compilers:
    """The C and C++ compiler, and whether they need the changed header."""

    cc: str
    cxx: str
    header: bool


def compilers(image: Image) -> Compilers:
    """Return the wheel's own compiler where the operating system has it, else the default one."""
    wanted = minor_of(image.wheel.compiler)
    if not wanted.startswith("4."):
        return Compilers("gcc", "g++", header=False)
    if wanted in image.os.compilers:
        return Compilers(f"gcc-{wanted}", f"g++-{wanted}", header=False)
    return Compilers("gcc", "g++", header=True)
