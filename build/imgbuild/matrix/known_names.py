"""Parse the image names of TensorFlow, Horovod and Azure Machine Learning."""

import re

_VERSION = r"(?P<version>\d+\.\d+)(?:\.\d+)?"
#: One pattern for each publisher. A version may have a suffix, for example rc1.
#: Sources: TensorFlow's page "Docker"; Horovod's page "Horovod in Docker" (images without "cpu" in
#: the name are for GPUs); Azure's repositories of curated environments.
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


def parse_known_name(text: str) -> tuple[str, str | None] | None:
    """Return version and variant from another publisher's image name; None for other texts.

    The version is ``2.2`` or ``latest``, the variant ``cpu``, ``gpu`` or None.
    """
    tensorflow, horovod, azure = (pattern.fullmatch(text) for pattern in _NAMES)
    if tensorflow:
        gpu = "gpu" in (tensorflow["variant"] or "")
        return tensorflow["version"] or "latest", "gpu" if gpu else "cpu"
    if horovod:
        cpu = "cpu" in f"{horovod['repository']}{horovod['variant']}"
        return horovod["version"], "cpu" if cpu else "gpu"
    if azure:
        variant = azure["variant"].lower()
        if "gpu" in variant or "cuda" in variant:
            return azure["version"], "gpu"
        return azure["version"], "cpu" if "cpu" in variant else None
    return None
