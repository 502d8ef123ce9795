"""Compare the matrix with artifacts: every rule is a function that yields what disagrees."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pydantic import Field

from imgbuild.dockerfile.lockfile import Lock
from imgbuild.matrix.images import Image
from imgbuild.matrix.pins import pin_location
from imgbuild.yaml_file import Location, Section

#: What the old platform tags promise of the C library: PEP 513, PEP 571, PEP 599.
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


@dataclass(frozen=True)
class OfferedFile:
    """A file of a project. ``yanked`` is the reason if it was withdrawn."""

    name: str
    url: str
    sha256: str
    yanked: str | None = None


#: What `Version` can read; evidence may say anything. No glibc is that of a wheel without symbols.
_Glibc = Annotated[str, Field(pattern=r"^([0-9]{1,4}(\.[0-9]{1,4})*)?$")]
_Capability = Annotated[str, Field(pattern=r"^(sm|compute)_[0-9]{2,3}$")]


class Facts(Section):
    """What a source distribution is. ``size`` is in bytes."""

    sha256: str
    file: str
    size: int | None
    name: str
    version: str


class WheelFacts(Facts):
    """What a TensorFlow wheel is, read out of the wheel.

    ``libraries`` are the GPU libraries that it loads, such as ``libcudnn.so.7``: they are needed at
    import, or opened when first used. build_info.py says whether it is a CUDA build, and from 2.3
    on for which compute capabilities. ``glibc`` is what its symbols ask for; the platform tag may
    promise less.
    """

    tags: tuple[str, ...]
    libraries: tuple[str, ...]
    loading: str
    cuda_build: bool | None
    capabilities: tuple[_Capability, ...]
    compiler: str
    cxx11_abi: int
    glibc: _Glibc

    def version_of(self, library: str) -> str | None:
        """Return the version in a library's name: ``10.1`` for ``cudart`` of libcudart.so.10.1."""
        start = f"lib{library}.so."
        found = (name.removeprefix(start) for name in self.libraries if name.startswith(start))
        return next(found, None)


def file_tags(file: str) -> frozenset[Tag]:
    """Return the tags in a wheel's file name, which installers use; none of another file."""
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()


@dataclass(frozen=True)
class Contradiction:
    """A pin and an artifact that do not agree.

    ``place`` is a location in matrix.yaml, or a file with what is meant in it.
    """

    kind: str
    subject: str
    place: Location | str
    evidence: str
    change: str


#: A contradiction without its subject.
_Found = tuple[str, Location | str, str, str]


@dataclass(frozen=True)
class Need:
    """A file of the package index, and the images that it goes into.

    It is a TensorFlow wheel for one Python, or Horovod's source distribution, without
    ``python_tag``.
    """

    distribution: str
    version: str
    python_tag: str
    images: tuple[Image, ...]

    @property
    def subject(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def what(self) -> str:
        if self.python_tag:
            return f"wheel of {self.subject} for {self.python_tag} on Linux x86-64"
        return f"source distribution of {self.subject}"

    @property
    def place(self) -> Location:
        image = self.images[0]
        if self.python_tag:
            return ("images", image.matrix.images.index(image.row))
        return ("horovod", self.version)

    def fits(self, file: str) -> bool:
        """Return whether a file is this version's, as a wheel for this Python on Linux x86-64."""
        start = f"{canonicalize_name(self.distribution).replace('-', '_')}-{self.version}"
        if not self.python_tag:
            return file == f"{start}.tar.gz"
        return file.startswith(f"{start}-") and any(
            tag.interpreter == self.python_tag
            and tag.platform.endswith("_x86_64")
            and "linux" in tag.platform
            for tag in file_tags(file)
        )

    def contradiction(self, kind: str, evidence: str, change: str) -> Contradiction:
        """Return what is wrong with the file as a whole."""
        return Contradiction(kind, self.subject, self.place, evidence, change)

    def hashes(self, locks: Mapping[str, Lock]) -> set[str]:
        """Return the sha256 that the matrix or the locks pin."""
        if not self.python_tag:
            return {self.images[0].horovod.sha256}
        return {sha256 for image in self.images for sha256 in _locked(image, locks)}


def compare(need: Need, facts: Facts, locks: Mapping[str, Lock]) -> tuple[Contradiction, ...]:
    """Return everything in which a file and the images it goes into do not agree, each once."""
    found: list[_Found] = []
    if isinstance(facts, WheelFacts):
        found += _metadata(need, facts)
        for image in need.images:
            found += [
                *_tags(image, facts),
                *_glibc(image, facts),
                *_lock(image, facts, locks),
                *_variant(image, facts),
                *_declared(image, facts),
            ]
    elif facts.sha256 not in need.hashes(locks):
        change = "find out which of this and the matrix's sha256 the authors released"
        found.append(("sha256", (*need.place, "sha256"), _has_hash(facts), change))
    return tuple(
        Contradiction(kind, need.subject, place, evidence, change)
        for kind, place, evidence, change in dict.fromkeys(found)
    )


def release_place(image: Image, *keys: str) -> Location:
    """Return a location in what the matrix says of the image's TensorFlow release."""
    return ("tensorflow", image.tensorflow, *keys)


def _has_hash(facts: Facts) -> str:
    return f"{facts.file} has sha256 {facts.sha256}"


def _metadata(need: Need, facts: WheelFacts) -> Iterator[_Found]:
    same_name = canonicalize_name(facts.name) == canonicalize_name(need.distribution)
    if not same_name or facts.version != need.version:
        place = release_place(need.images[0], "distribution")
        evidence = f"the wheel's own METADATA says {facts.name} {facts.version}"
        change = "the index offers another package under this name; do not build from it"
        yield "metadata", place, evidence, change


def _tags(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    tag = image.python.wheel_tag
    interpreters = {tag.interpreter for tag in file_tags(facts.file)}
    inside = {text.partition("-")[0] for text in facts.tags}
    for where, found in (("file name", interpreters), ("WHEEL file", inside)):
        if tag not in found:
            place = pin_location(image.matrix, image.row, "python")
            evidence = f"its {where} has the tags {' '.join(sorted(found)) or 'of no Python'}"
            change = (
                f"{image.name} has Python {image.version_of('python')} ({tag}): pin a Python that "
                "this release has wheels for"
            )
            yield "python", place, evidence, change


def _promised_glibc(facts: WheelFacts) -> str | None:
    """Return the oldest C library that the platform tags of a wheel promise to run with."""
    names = [tag.platform.removesuffix("_x86_64") for tag in file_tags(facts.file)]
    promises = [_LEGACY.get(name) or ".".join(name.split("_")[1:3]) for name in names]
    return min(filter(None, promises), key=Version, default=None)


def _glibc(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    has = image.os.glibc
    for what, needed in (("platform tag", _promised_glibc(facts)), ("symbols", facts.glibc)):
        if needed and Version(needed) > Version(has):
            place: Location = ("operating_systems", image.os_name, "glibc")
            change = f"{image.os_name} has {has}: put {image.name} on a newer operating system"
            yield "glibc", place, f"its {what} ask for glibc {needed}", change


def _lock(image: Image, facts: WheelFacts, locks: Mapping[str, Lock]) -> Iterator[_Found]:
    hashes = _locked(image, locks)
    if image.lock_name in locks and facts.sha256 not in hashes:
        change = (
            f"none of the lock's {len(hashes)} hashes is that: run `imgbuild lock`, read the diff"
        )
        yield "lock", f"images/locks/{image.lock_name}", _has_hash(facts), change


def _locked(image: Image, locks: Mapping[str, Lock]) -> tuple[str, ...]:
    lock = locks.get(image.lock_name)
    return lock.hashes.get(canonicalize_name(image.distribution), ()) if lock else ()


def _variant(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    if image.variant == "gpu":
        wrong, which = not _is_gpu(facts), "with CUDA, usually tensorflow-gpu"
    else:
        wrong = bool(facts.libraries or facts.cuda_build)
        which = "without CUDA; there is none if tensorflow-cpu lacks this release"
    if wrong:
        evidence = (
            f"it loads {' '.join(facts.libraries) or 'no GPU library'}, and its build_info.py says "
            f"is_cuda_build = {facts.cuda_build}"
        )
        place = release_place(image, "distribution", image.variant)
        yield image.variant, place, evidence, f"name the distribution that is built {which}"


def _is_gpu(facts: WheelFacts) -> bool:
    return facts.version_of("cudart") is not None and facts.cuda_build is not False


def _declared(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    """Compare the versions that the matrix states with those in the wheel."""
    for kind, place, stated, found, evidence in (*_built(image, facts), *_loaded(image, facts)):
        if stated != found:
            yield kind, place, f"{evidence} {found}", f"write {found} in place of {stated}"


#: What is stated and where, the same as the wheel has it, and how that was seen.
_Stated = tuple[str, Location, str, str, str]


def _built(image: Image, facts: WheelFacts) -> Iterator[_Stated]:
    """Yield the compiler, and what the platform tag promises."""
    wheel, seen = image.wheel, "its tf.version.COMPILER_VERSION is"
    yield "compiler", release_place(image, "compiler"), wheel.compiler, facts.compiler, seen
    if promised := _promised_glibc(facts):
        seen = "its platform tag promises glibc"
        yield "platform", release_place(image, "glibc"), wheel.glibc, promised, seen


def _loaded(image: Image, facts: WheelFacts) -> Iterator[_Stated]:
    """Yield the GPU libraries, and the compute capabilities if build_info.py lists them (2.3 on).

    ``compute_70`` stands for machine code and PTX, ``sm_70`` for machine code alone.
    """
    if image.variant == "cpu" or not _is_gpu(facts):
        return
    gpu = image.wheel.gpu
    # From 11 on every minor release has the names of the first.
    named = 1 if Version(gpu.cuda) >= Version("11") else 2
    for name, what, parts, loaded, release in (
        ("cuda", "version of libcudart", named, facts.version_of("cudart"), gpu.cuda),
        ("cudnn", "major version of cuDNN", 1, facts.version_of("cudnn"), gpu.cudnn),
    ):
        pin = pin_location(image.matrix, image.row, name)
        places = {pin: image.version_of(name), release_place(image, "gpu", name): release}
        for place, version in places.items():
            stated, has = (".".join(v.split(".")[:parts]) for v in (version, loaded or "none"))
            yield name, place, stated, has, f"the {what} that it loads is"
    for key, numbers, start in (("native", gpu.native, ""), ("ptx", gpu.ptx, "compute_")):
        listed = [one for one in facts.capabilities if one.startswith(start)]
        digits = [one.rpartition("_")[2] for one in listed]
        found = _listed(f"{one[:-1]}.{one[-1:]}" for one in digits)
        if facts.capabilities:
            seen = f"its build_info.py lists {' '.join(facts.capabilities)}:"
            yield "capabilities", release_place(image, "gpu", key), _listed(numbers), found, seen


def _listed(capabilities: Iterable[str]) -> str:
    return f"[{', '.join(sorted(capabilities, key=Version))}]"


def compare_locks(
    locks: Mapping[str, Lock], pages: Mapping[str, Mapping[str, OfferedFile]]
) -> Iterator[Contradiction]:
    """Yield what of the locks the index no longer offers, or has withdrawn."""
    change = "run `imgbuild lock --upgrade`, or pin another version in matrix.yaml"
    for file_name, lock in locks.items():
        for name, hashes in lock.hashes.items():
            offered = {file.sha256: file for file in pages[name].values()}
            subject, place = f"{name} {lock.versions[name]}", f"images/locks/{file_name}"
            gone = [sha256 for sha256 in hashes if sha256 not in offered]
            yanked = [offered[one] for one in hashes if one in offered and offered[one].yanked]
            if gone:
                evidence = f"{len(gone)} of {len(hashes)} files are no longer offered: "
                evidence += f"sha256 {gone[0]}" + " …" * (len(gone) > 1)
                yield Contradiction("gone", subject, place, evidence, change)
            if yanked:
                evidence = f"{yanked[0].name} was withdrawn: {yanked[0].yanked}"
                yield Contradiction("yanked", subject, place, evidence, change)
