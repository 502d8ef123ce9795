"""How images are built, as the command line says it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BuildOptions:
    """How to build: with suites or without, past failures or not, how many images to test at once.

    How many steps run at once is BuildKit's business.
    """

    test: bool = True
    keep_going: bool = False
    jobs: int = 2
