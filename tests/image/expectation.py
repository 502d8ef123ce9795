"""What one image must be: the JSON that the matrix gives a suite, typed.

The suites read every expected value from here and none from the image, so an image cannot agree
with itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from pathlib import Path

ALWAYS_PINNED = ("tensorflow", "tensorboard", "python", "git", "os")
#: Images have both or neither: without, their flavour of MPI is null.
MPI_PINNED = ("horovod", "mpi")
GPU_PINNED = ("cuda", "cudnn", "nccl")
FREE_OF_ENTRIES = frozenset({"labels", "held", "gpu", "requested"})
#: What `gpu` says of a GPU image: the CUDA that the wheel was compiled for, the oldest driver, the
#: newest and the oldest compute capability.
GPU_NEEDS = frozenset({"cuda", "driver", "newest", "oldest"})
#: And where CUDA is the index's, the compute capabilities that Horovod's kernels are for.
GPU_KERNELS = "kernels"
#: The first TensorFlow whose Keras is Keras 3, and the package that is Keras 2 then.
KERAS_3, KERAS_2 = (2, 16), "tf-keras"
#: And what makes `tf.keras` of it.
USE_KERAS_2 = ("env", "TF_USE_LEGACY_KERAS=1")
#: The first TensorFlow that is imported without libcuda.so.1.
WITHOUT_DRIVER = (1, 14)


class ExpectationError(ValueError):
    """The expectation file does not say what it must."""


@dataclass(frozen=True)
class Expectation:
    """One image as the matrix describes it; versions are exact and without operators."""

    name: str
    tensorflow: str
    variant: str
    stack: str
    pins: dict[str, str]
    mpi_flavour: str | None
    os_id: str
    horovodrun: bool
    standin: bool
    packages: dict[str, str]
    held: dict[str, str]
    gpu: dict[str, str]
    labels: dict[str, str]
    #: The packages that an extension was asked for and added; none in an image of the matrix.
    requested: dict[str, str]
    #: The platform as Docker names it.
    platform: str

    @property
    def tensorflow_minor(self) -> tuple[int, int]:
        """Return TensorFlow's major and minor number, by which the API differs."""
        major, minor = self.tensorflow.split(".")[:2]
        return int(major), int(minor)

    @property
    def tensorflow_release(self) -> tuple[int, ...]:
        """Return TensorFlow's three numbers."""
        return Version(self.tensorflow).release

    @property
    def needs_driver(self) -> bool:
        """Return whether TensorFlow can be imported only where libcuda.so.1 is."""
        return self.variant == "gpu" and self.tensorflow_minor < WITHOUT_DRIVER

    @property
    def has_keras_2(self) -> bool:
        """Return whether Keras 2 is there beside Keras 3."""
        return self.tensorflow_minor >= KERAS_3 and self.has(KERAS_2)

    @property
    def mpi(self) -> str:
        """Return the flavour of MPI, for the checks that only images with MPI have."""
        assert self.mpi_flavour is not None, "the image has no MPI"
        return self.mpi_flavour

    def has(self, *packages: str) -> bool:
        """Return whether one of these is in the image's lock."""
        return not set(packages).isdisjoint(self.packages)


def read_expectation(file: Path) -> Expectation:
    """Return the expectation in `file`.

    Raises ExpectationError, with the file's name, for an absent or malformed file.
    """
    try:
        return parse_expectation(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError, ExpectationError) as error:
        raise ExpectationError(f"{file}: {error}") from error


def parse_expectation(document: Any) -> Expectation:
    """Return `document` as an Expectation; it may leave out `labels`, `requested` and `platform`.

    Raises ExpectationError for keys that are unknown, missing, empty or of a wrong type: a
    misspelt or empty key would otherwise be a check that silently checks nothing.
    """
    if not isinstance(document, dict):
        raise ExpectationError("not a JSON object")
    values = {"labels": {}, "requested": {}, "platform": "linux/amd64", **document}
    types = {field.name: str(field.type) for field in fields(Expectation)}
    _refuse("unknown", values.keys() - types.keys())
    _refuse("missing", types.keys() - values.keys())
    _refuse("of a wrong type", {key for key in types if not _is(values[key], types[key])})
    _refuse("empty", {key for key in types.keys() - FREE_OF_ENTRIES if values[key] in ("", {})})
    wanted = (*ALWAYS_PINNED, *(MPI_PINNED if values["mpi_flavour"] is not None else ()))
    _refuse("missing (pins)", set(wanted) - values["pins"].keys())
    _refuse_half_a_gpu(values)
    return Expectation(**values)


def _refuse_half_a_gpu(values: dict[str, Any]) -> None:
    """Raise ExpectationError unless a GPU image has all that its suites judge by, and no other."""
    wanted = values["variant"] == "gpu"
    _refuse("missing (gpu)", (GPU_NEEDS if wanted else frozenset()) - values["gpu"].keys())
    known = GPU_NEEDS | {GPU_KERNELS} if wanted else frozenset()
    _refuse("unknown (gpu)", values["gpu"].keys() - known)
    if wanted:
        _refuse("missing (pins)", set(GPU_PINNED) - values["pins"].keys())
        of_apt = GPU_KERNELS not in values["gpu"]
        _refuse("empty", {"held"} if of_apt and not values["held"] else set())


def _refuse(fault: str, keys: AbstractSet[str]) -> None:
    """Raise ExpectationError when there are `keys` with this `fault`."""
    if keys:
        raise ExpectationError(f"{fault}: {', '.join(sorted(keys))}")


def _is(value: object, type_name: str) -> bool:
    """Return whether `value` is a str, a bool, None, or a dict of strings, as `type_name` says."""
    if value is None:
        return type_name.endswith(" | None")
    if type_name == "dict[str, str]":
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return type(value).__name__ == type_name.removesuffix(" | None")
