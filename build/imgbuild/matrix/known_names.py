"""Read names of images elsewhere: TensorFlow's own, Horovod's and Azure Machine Learning's."""

import re
from typing import NamedTuple

_VERSION = r"(?P<version>\d+\.\d+)(?:\.\d+)?"
#: Names of each publisher. A version may have a suffix, for example rc1.
#: Sources: TensorFlow's page "Docker"; Horovod's page "Horovod in Docker", whose images without
#: "cpu" in their names are for GPUs; Azure's repositories of curated environments.
_NAMES = (
    re.compile(
        rf"(?:docker\.io/)?tensorflow/tensorflow(?::(?:{_VERSION}|(?P<latest>latest))"
        r"(?P<variant>[\w.-]*))?"
    ),
    re.compile(
        rf"(?:docker\.io/)?horovod/horovod(?P<repository>-cpu|-gpu)?:[\w.]+-tf{_VERSION}"
        r"(?P<variant>[\w.-]*)"
    ),
    re.compile(
        rf"(?:mcr\.microsoft\.com/)?(?:azureml/(?:curated/)?)?(?:azureml-|acpt-)?tensorflow-{_VERSION}"
        r"(?P<variant>-[\w.-]+)(?:[:@][\w.-]+)?",
        re.IGNORECASE,
    ),
)


class KnownName(NamedTuple):
    """The facts in a name: ``2.2`` or ``latest``, and ``cpu``, ``gpu`` or None."""

    version: str
    variant: str | None

    @property
    def options(self) -> str:
        """The options that select such an image of the family."""
        return f"--tf {self.version}" + (f" --{self.variant}" if self.variant else "")


def parse_known_name(text: str) -> KnownName | None:
    """Return what a name of another publisher's image says; None for any other text."""
    tensorflow, horovod, azure = (pattern.fullmatch(text) for pattern in _NAMES)
    if tensorflow:
        gpu = "gpu" in (tensorflow["variant"] or "")
        return KnownName(tensorflow["version"] or "latest", "gpu" if gpu else "cpu")
    if horovod:
        cpu = "cpu" in f"{horovod['repository']}{horovod['variant']}"
        return KnownName(horovod["version"], "cpu" if cpu else "gpu")
    if azure:
        variant = azure["variant"].lower()
        gpu = "gpu" in variant or "cuda" in variant
        return KnownName(azure["version"], "gpu" if gpu else "cpu" if "cpu" in variant else None)
    return None
