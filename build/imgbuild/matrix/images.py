"""The images of the matrix. An image is a row in one variant, with all pins resolved."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from imgbuild.core.errors import InputError
from imgbuild.matrix.components import AptCuda, Cuda, IndexCuda, Mpi, NoMpi, Python
from imgbuild.matrix.evidence import MACHINES, Architecture, WheelFacts
from imgbuild.matrix.model import Horovod, Matrix, OperatingSystem, Row, TensorFlow, Variant
from imgbuild.matrix.pins import (
    ResolvedPin,
    distribution_key,
    resolve_os,
    resolve_pins,
    usual_mpi,
)
from imgbuild.matrix.rule_model import Part
from imgbuild.matrix.tags import PLACEHOLDER, PlannedTags, join_parts, python_part

#: Prefix of the repository of images that are built from stand-ins. No such host can exist, so the
#: images cannot be pushed. Source: RFC 2606, section 2.
STANDIN_HOST = "standin.invalid/"


@dataclass(frozen=True)
class Image:
    """One TensorFlow in one variant on one stack and architecture, with its components' pins."""

    tensorflow: str
    variant: Variant
    stack: str
    os_name: str
    repository: str
    pins: tuple[ResolvedPin, ...]
    row: Row
    matrix: Matrix
    architecture: Architecture = "amd64"

    @property
    def minor(self) -> str:
        """The minor version of TensorFlow, which users select by, for example ``2.2``."""
        return minor_of(self.tensorflow)

    @property
    def python_minor(self) -> str:
        """The minor version of its Python, for example ``3.6``."""
        return minor_of(self.version_of("python"))

    @cached_property
    def name(self) -> str:
        """The name in files, logs and reports, for example ``tf-2.2-cpu-debian``.

        Only the names of images for another architecture than amd64 end with the architecture.
        """
        mpi = "" if self.usual_mpi else self.mpi.flavour
        words = ("tf", self.minor, self.variant, self.stack, mpi, self._architecture_part)
        return "-".join(filter(None, words))

    @property
    def _architecture_part(self) -> str:
        return "" if self.architecture == "amd64" else self.architecture

    @property
    def base_name(self) -> str:
        """The name of its base image: its system, and its architecture if that is not amd64."""
        return "-".join(filter(None, (self.os_name, self._architecture_part)))

    @property
    def platform(self) -> str:
        """The platform as Docker names it, for example ``linux/amd64``."""
        return f"linux/{self.architecture}"

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms of the images of its row and variant, for example ``linux/amd64``."""
        own = [name for name in MACHINES if self.row.is_for(self.variant, name)]
        return tuple(f"linux/{name}" for name in own)

    @property
    def machine(self) -> str:
        """The architecture as wheels and ``uname`` name it, for example ``x86_64``."""
        return MACHINES[self.architecture]

    @property
    def uses_build_machine(self) -> bool:
        """Whether the building machine's own processor installs packages and compiles Horovod.

        So it is for another architecture than amd64, if Python is a package of the system: the
        building machine then has the same Python. A compiled Python is there for the image alone.
        """
        return self.architecture != "amd64" and self.python.origin == "apt"

    @property
    def tags(self) -> tuple[str, ...]:
        """The references that it gets after its suites passed, which are also its moving tags.

        The immutable tag is not one of them, because it contains a release. Messages use the first
        reference. Those of images for another architecture than amd64 end with the architecture.
        """
        return tuple(f"{self.repository}:{tag}" for tag in planned_tags(self).moving)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its names elsewhere, for example in Azure Machine Learning."""
        return self.matrix.aliases.get(self.name, ())

    @property
    def lock_name(self) -> str:
        """The lock of this TensorFlow, Python, variant and architecture; all stacks share it."""
        words = (f"tf-{self.tensorflow}", f"py{self.python_minor}", self.variant)
        return "-".join(filter(None, (*words, self._architecture_part))) + ".txt"

    @property
    def build_lock_name(self) -> str:
        return f"build-py{self.python_minor}.txt"

    @property
    def mpi_lock_name(self) -> str | None:
        """The lock of an MPI from the Python package index; None for any other MPI."""
        name = f"mpi-{self.mpi_name}-py{self.python_minor}.txt"
        return name if self.mpi.origin == "index" else None

    @property
    def cuda_lock_name(self) -> str | None:
        """The lock of the CUDA and NCCL headers from the index; None for any other CUDA."""
        cuda, nccl = self.keys.get("cuda"), self.keys.get("nccl")
        name = f"cuda-{cuda}-nccl-{nccl}-py{self.python_minor}.txt"
        return name if self.index_cuda else None

    @property
    def titled_locks(self) -> dict[str, str]:
        """The locks from the Python package index that it is built with, by title for messages."""
        names = {
            "lock": self.lock_name,
            "build lock": self.build_lock_name,
            "MPI lock": self.mpi_lock_name,
            "CUDA lock": self.cuda_lock_name,
        }
        return {title: name for title, name in names.items() if name}

    @property
    def lock_names(self) -> tuple[str, ...]:
        return tuple(self.titled_locks.values())

    @cached_property
    def _by_component(self) -> dict[str, ResolvedPin]:
        return {pin.component: pin for pin in self.pins}

    @cached_property
    def keys(self) -> dict[str, str]:
        """The pins by component, spelt as in the matrix's tables, for example ``openmpi-4.1.4``."""
        return {pin.component: pin.key or pin.version for pin in self.pins}

    def version_of(self, component: str) -> str:
        """Return the version of a component; KeyError if the image does not have it."""
        return self._by_component[component].version

    @property
    def os(self) -> OperatingSystem:
        return self.matrix.operating_systems[self.os_name]

    @property
    def release(self) -> TensorFlow:
        return self.matrix.tensorflow[self.tensorflow]

    @property
    def wheel(self) -> WheelFacts:
        """The facts about its TensorFlow wheel; InputError if the evidence has none."""
        tag = self.python.wheel_tag
        wheel = self.matrix.evidence.wheel(self.distribution, self.tensorflow, tag, self.machine)
        if wheel is None:
            raise InputError(
                f"images/evidence.json has no facts about the {tag} wheel of {self.distribution} "
                f"{self.tensorflow}, which {self.name} needs. Run `imgbuild audit --write` on a "
                "machine that can reach the package index. It reads the wheel."
            )
        return wheel

    @property
    def distribution(self) -> str:
        """The package of this variant on the index, for example ``tensorflow-cpu``."""
        return self.release.distribution[distribution_key(self.variant, self.architecture)]

    @property
    def provided(self) -> dict[str, str]:
        """The versions of other TensorFlow distributions that the image has metadata for, by name.

        Packages that require one of them accept the installed TensorFlow. No release on an index
        has this version, because it has a local part.
        """
        names = ["tensorflow", "tensorflow-cpu", *(["tensorflow-gpu"] if self.cuda else [])]
        version = f"{self.tensorflow}+imgbuild"
        return {name: version for name in names if name != self.distribution}

    @property
    def python(self) -> Python:
        return self.matrix.python[self.version_of("python")]

    @property
    def mpi(self) -> Mpi | NoMpi:
        return self.matrix.mpi[self.keys["mpi"]] if "mpi" in self.keys else NoMpi()

    @property
    def mpi_name(self) -> str:
        return self.keys.get("mpi", self.mpi.flavour)

    @property
    def usual_mpi(self) -> bool:
        return self.mpi_name == usual_mpi(self.matrix, self.row)

    @property
    def cuda(self) -> Cuda | None:
        return self.matrix.cuda[self.version_of("cuda")] if self.variant == "gpu" else None

    @property
    def apt_cuda(self) -> AptCuda | None:
        """Its CUDA if that comes from NVIDIA's apt repositories."""
        return self.cuda if isinstance(self.cuda, AptCuda) else None

    @property
    def index_cuda(self) -> IndexCuda | None:
        """Its CUDA if that comes from the Python package index."""
        return self.cuda if isinstance(self.cuda, IndexCuda) else None

    @property
    def cuda_requirements(self) -> tuple[str, ...]:
        """Requirements for CUDA, cuDNN and NCCL from the index; empty for any other CUDA."""
        if (cuda := self.index_cuda) is None:
            return ()
        cudnn = f"{cuda.cudnn_package}=={self.version_of('cudnn')}"
        return (*cuda.runtime, cudnn, f"{cuda.nccl_package}=={self.version_of('nccl')}")

    @property
    def horovod(self) -> Horovod | None:
        """Its Horovod; None if the image has neither Horovod nor MPI."""
        version = self.keys.get("horovod")
        return self.matrix.horovod[version] if version else None

    @property
    def horovod_source(self) -> tuple[str, str] | None:
        """Release and sha256 of Horovod's source, without the local part of a patched release."""
        version = self.keys.get("horovod", "").partition("+")[0]
        return (version, self.horovod.sha256) if self.horovod else None

    @property
    def budget(self) -> int | None:
        """The size budget in bytes; None if the row has none."""
        megabytes = self.row.budget.get(self.variant)
        return None if megabytes is None else megabytes * 1_000_000

    @property
    def ran_on(self) -> tuple[str, ...]:
        """The GPUs on which the suite ``gpu_runs`` of this image passed, by the matrix."""
        return self.row.ran_on if self.variant == "gpu" else ()

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tensorflow": self.tensorflow,
            "variant": self.variant,
            "stack": self.stack,
            "tags": list(self.tags),
            "platforms": list(self.platforms),
            "os": self.os_name,
            "mpi": self.mpi_name,
            "pins": {pin.component: pin.version for pin in self.pins},
        }


def minor_of(version: str) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def standin_image(image: Image) -> Image:
    """Return the image with a repository that it cannot be pushed to."""
    return replace(image, repository=f"{STANDIN_HOST}{image.repository}")


def all_images(matrix: Matrix, architecture: Architecture = "amd64") -> tuple[Image, ...]:
    """Return all images for one architecture, in the order of the file.

    Skip images with missing pins or broken references, which `load_matrix` reports.
    """
    images = []
    for row in matrix.images:
        for variant in row.variants:
            if row.is_for(variant, architecture):
                with suppress(LookupError):
                    images.append(resolve_image(matrix, row, variant, architecture))
    return tuple(images)


def with_other_architectures(images: Iterable[Image]) -> tuple[Image, ...]:
    """Return images for amd64, each followed by the same image for arm64 if its row has that."""
    both = []
    for image in images:
        both.append(image)
        if other := for_other_architecture(image):
            both.append(other)
    return tuple(both)


def with_build_images(images: Iterable[Image], platform: str) -> tuple[Image, ...]:
    """Return images, and those whose base images their builds on a platform also need.

    A machine for amd64 installs and compiles on its own base for an image for arm64.
    """
    needed: dict[Image, None] = {}
    for image in images:
        needed[image] = None
        other = for_other_architecture(image)
        if other and image.uses_build_machine and platform == other.platform:
            needed[other] = None
    return tuple(needed)


def for_amd64(image: Image) -> Image:
    """Return the image for amd64, after which the Dockerfile of both is named."""
    usual = image if image.architecture == "amd64" else for_other_architecture(image)
    return usual or image


def for_other_architecture(image: Image) -> Image | None:
    """Return the image for arm64 of one for amd64, and the other way round; None if there is none.

    Both have the same Dockerfile.
    """
    architecture: Architecture = "arm64" if image.architecture == "amd64" else "amd64"
    if not image.row.is_for(image.variant, architecture):
        return None
    other = resolve_image(image.matrix, image.row, image.variant, architecture)
    return replace(other, repository=image.repository)


# Cached, because every check of the matrix and every selection resolves all images.
@lru_cache(maxsize=1024)
def resolve_image(
    matrix: Matrix, row: Row, variant: Variant, architecture: Architecture = "amd64"
) -> Image:
    """Return the image of a row in one variant for one architecture.

    LookupError: a pin is missing, or a reference names no entry.
    """
    return Image(
        tensorflow=row.tensorflow,
        variant=variant,
        stack=row.stack,
        os_name=resolve_os(matrix, row),
        repository=matrix.repository,
        pins=resolve_pins(matrix, row, variant, architecture),
        row=row,
        matrix=matrix,
        architecture=architecture,
    )


def planned_tags(image: Image, release: str = PLACEHOLDER) -> PlannedTags:
    """Return all tags of an image in one release, without duplicates."""
    return _join_tags(image, {**parts_of(image), "release": release})


def tags_with_pins(image: Image, pins: Mapping[str, str]) -> PlannedTags:
    """Return the tags that an image had with these pins. The release is `PLACEHOLDER`."""
    parts = {**parts_of(image), "release": PLACEHOLDER}
    own = {pin.component: pin.version for pin in image.pins}
    changed = {name: version for name, version in pins.items() if own.get(name) != version}
    if version := changed.get("tensorflow"):
        parts |= {"tensorflow": version, "minor": ".".join(version.split(".")[:2])}
    if version := changed.get("python"):
        parts["python"] = python_part(version)
    if version := changed.get("cuda"):
        parts["cuda"] = f"cuda{version}"
    if version := changed.get("mpi"):  # for example openmpi-4.1.4
        parts["mpi"] = version.replace("-", "", 1)
    if version := changed.get("os"):
        parts["os"] = f"{image.os.distribution}{version}"
    return _join_tags(image, parts)


def _join_tags(image: Image, parts: Mapping[Part, str]) -> PlannedTags:
    scheme = image.matrix.tags
    ending = "" if image.architecture == "amd64" else f"-{image.architecture}"
    moving = dict.fromkeys(f"{join_parts(entry, parts)}{ending}" for entry in scheme.moving)
    return PlannedTags(f"{join_parts(scheme.immutable, parts)}{ending}", tuple(moving))


def parts_of(image: Image) -> dict[Part, str]:
    """Return all parts of the image's tags except the release."""
    return {
        "tensorflow": image.tensorflow,
        "minor": image.minor,
        "variant": image.variant,
        "python": python_part(image.version_of("python")),
        "cuda": f"cuda{image.version_of('cuda')}" if image.cuda else "",
        "mpi": f"{image.mpi.flavour}{image.mpi.version}",
        "os": f"{image.os.distribution}{image.os.version}",
        "stack": stack_part(image, image.stack),
        "flavour": "" if image.usual_mpi else image.mpi.flavour,
    }


def stack_part(image: Image, stack: str) -> str:
    """Return the stack's name, or an empty text for the default stack, which tags omit."""
    return "" if stack == image.matrix.defaults.stack else stack
