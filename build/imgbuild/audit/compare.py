"""Compare the matrix with artifacts: every rule is a function that yields what disagrees."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import Version

from imgbuild.audit.facts import Evidence, SdistNeed, WheelFacts, WheelNeed
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.matrix.images import Image, minor_of
from imgbuild.matrix.pins import pin_location
from imgbuild.yaml_file import Location

#: What the old platform tags promise of the C library: PEP 513, PEP 571, PEP 599.
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
#: From CUDA 10.1 on most libraries are named by their own major version alone.
_BY_MAJOR = ("cublas", "cufft", "curand", "cusolver", "cusparse")
_BY_CUDA = ("cudart", "cupti")

_WRITE = "run `imgbuild audit --write` where the package index can be reached, and commit the file"


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


def known_wheel(
    need: WheelNeed, evidence: Evidence, locks: Mapping[str, Lock]
) -> WheelFacts | None:
    """Return the facts of the wheel that the locks name, else of any that fits the need."""
    candidates = [
        facts
        for facts in evidence.artifacts
        if isinstance(facts, WheelFacts) and need.fits(facts.file)
    ]
    locked = {sha256 for image in need.images for sha256 in _locked_hashes(image, locks)}
    return max(candidates, key=lambda facts: facts.sha256 in locked, default=None)


def lacking(need: WheelNeed | SdistNeed, evidence: Evidence) -> Contradiction:
    """Return that the evidence does not hold what an image needs."""
    if isinstance(need, WheelNeed):
        text = f"images/evidence.json has no wheel of {need.subject} for {need.python_tag}"
        return row_contradiction(need, "evidence", text, _WRITE)
    known = [one.sha256 for one in evidence.artifacts if one.file == need.file]
    text = f"images/evidence.json has {f'sha256 {known[0]}' if known else 'none of this version'}"
    place = ("horovod", need.version, "sha256")
    return Contradiction("evidence", need.subject, place, text, f"correct the sha256, or {_WRITE}")


def row_contradiction(need: WheelNeed, kind: str, evidence: str, change: str) -> Contradiction:
    """Return a contradiction that is about the whole wheel of a row."""
    image = need.images[0]
    row = image.matrix.images.index(image.row)
    return Contradiction(kind, need.subject, ("images", row), evidence, change)


def release_place(image: Image, *keys: str) -> Location:
    """Return a location in what the matrix says of the image's TensorFlow release."""
    return ("tensorflow", image.tensorflow, *keys)


def compare(
    need: WheelNeed, facts: WheelFacts, locks: Mapping[str, Lock]
) -> tuple[Contradiction, ...]:
    """Return everything in which the wheel and the images it goes into do not agree, each once."""
    found: list[_Found] = [*_metadata(need, facts)]
    for image in need.images:
        found += [
            *_tags(image, facts),
            *_glibc(image, facts),
            *_lock(image, facts, locks),
            *_compiler(image, facts),
            *(_cpu(image, facts) if image.variant == "cpu" else _gpu(image, facts)),
        ]
    return tuple(
        Contradiction(kind, need.subject, place, evidence, change)
        for kind, place, evidence, change in dict.fromkeys(found)
    )


def _metadata(need: WheelNeed, facts: WheelFacts) -> Iterator[_Found]:
    same_name = canonicalize_name(facts.name) == canonicalize_name(need.distribution)
    if not same_name or facts.version != need.version:
        place = release_place(need.images[0], "distribution")
        evidence = f"the wheel's own METADATA says {facts.name} {facts.version}"
        change = "the index offers another package under this name; do not build from it"
        yield "metadata", place, evidence, change


def _tags(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    tag = image.python.wheel_tag
    interpreters = {tag.interpreter for tag in facts.file_tags}
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


def _promised_glibc(facts: WheelFacts) -> Version | None:
    """Return the oldest C library that the platform tags of a wheel promise to run with."""
    versions = []
    for tag in facts.file_tags:
        name = tag.platform.removesuffix("_x86_64")
        if name in _LEGACY:
            versions.append(Version(_LEGACY[name]))
        elif name.startswith("manylinux_"):
            versions.append(Version(".".join(name.split("_")[1:3])))
    return min(versions, default=None)


def _glibc(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    promised, has = _promised_glibc(facts), Version(image.os.glibc)
    for what, needed in (("platform tag", promised), ("symbols", Version(facts.glibc))):
        if needed is not None and needed > has:
            place: Location = ("operating_systems", image.os_name, "glibc")
            change = f"{image.os_name} has {has}: put {image.name} on a newer operating system"
            yield "glibc", place, f"its {what} ask for glibc {needed}", change
    declared = image.wheel.glibc
    if promised is not None and Version(declared) != promised:
        evidence = f"its platform tag promises glibc {promised}"
        change = f"write {promised} in place of {declared}"
        yield "platform", release_place(image, "glibc"), evidence, change


def _lock(image: Image, facts: WheelFacts, locks: Mapping[str, Lock]) -> Iterator[_Found]:
    hashes = _locked_hashes(image, locks)
    if image.lock_name in locks and facts.sha256 not in hashes:
        evidence = f"{facts.file} has sha256 {facts.sha256}"
        change = (
            f"none of the lock's {len(hashes)} hashes is that: run `imgbuild lock`, read the diff"
        )
        yield "lock", f"images/locks/{image.lock_name}", evidence, change


def _locked_hashes(image: Image, locks: Mapping[str, Lock]) -> tuple[str, ...]:
    lock = locks.get(image.lock_name)
    return lock.hashes.get(canonicalize_name(image.distribution), ()) if lock else ()


def _compiler(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    if image.wheel.compiler != facts.compiler:
        evidence = f"its tf_compiler_version() returns {facts.compiler}"
        change = (
            f"write {facts.compiler} in place of {image.wheel.compiler}; Horovod is built to match"
        )
        yield "compiler", release_place(image, "compiler"), evidence, change


def _cpu(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    if facts.libraries or facts.cuda_build:
        loads = f"loads {' '.join(facts.libraries)}" if facts.libraries else "is a CUDA build"
        change = (
            "name the distribution without CUDA; there is none of this release if tensorflow-cpu "
            "has it not"
        )
        yield "cpu", release_place(image, "distribution", "cpu"), f"it {loads}", change


def _gpu(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    if facts.version_of("cudart") and facts.cuda_build is not False:
        yield from _cuda(image, facts)
        yield from _cudnn(image, facts)
        yield from _capabilities(image, facts)
        return
    change = "name the distribution that is built for CUDA, usually tensorflow-gpu"
    yield "gpu", release_place(image, "distribution", "gpu"), "it loads no CUDA library", change


def expected_libraries(cuda: str) -> dict[str, str]:
    """Return the versions in the library names of a CUDA release: ``{"cudart": "10.1", …}``."""
    major, numbers = cuda.partition(".")[0], tuple(map(int, cuda.split(".")[:2]))
    if numbers >= (11, 0):  # from here on each library counts for itself
        return {"cudart": cuda}
    by_major = major if numbers >= (10, 1) else cuda
    return dict.fromkeys(_BY_CUDA, cuda) | dict.fromkeys(_BY_MAJOR, by_major)


def _cuda(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    pin = pin_location(image.matrix, image.row, "cuda")
    release = release_place(image, "gpu", "cuda")
    for place, version, what in (
        (pin, minor_of(image.version_of("cuda")), "the image's pin"),
        (release, minor_of(image.wheel.gpu.cuda), "what this says"),
    ):
        expected = expected_libraries(version)
        found = {name: facts.version_of(name) for name in expected}
        wrong = [name for name, other in found.items() if other and other != expected[name]]
        if wrong:
            names = " ".join(f"lib{name}.so.{found[name]}" for name in wrong)
            change = (
                f"{what} is CUDA {version}; write {facts.version_of('cudart')}, with which these "
                "libraries come"
            )
            yield "cuda", place, f"it loads {names}", change


def _cudnn(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    major = facts.version_of("cudnn")
    for place, version in (
        (pin_location(image.matrix, image.row, "cudnn"), image.version_of("cudnn")),
        (release_place(image, "gpu", "cudnn"), image.wheel.gpu.cudnn),
    ):
        if version.partition(".")[0] != major:
            loads = f"it loads libcudnn.so.{major}" if major else "it loads no cuDNN"
            change = f"cuDNN {version} has another major version; name a release of cuDNN {major}"
            yield "cudnn", place, loads, change


def _capabilities(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    """Compare the compute capabilities, where ``build_info.py`` lists them (from 2.3 on).

    ``compute_70`` stands for machine code and PTX, ``sm_70`` for machine code alone.
    """
    if not facts.capabilities:
        return
    digits = {name: name.rpartition("_")[2] for name in facts.capabilities}
    native = {name: f"{one[:-1]}.{one[-1:]}" for name, one in digits.items()}
    ptx = [one for name, one in native.items() if name.startswith("compute_")]
    gpu = image.wheel.gpu
    for key, declared, found in (
        ("native", gpu.native, list(native.values())),
        ("ptx", gpu.ptx, ptx),
    ):
        if set(declared) != set(found):
            evidence = f"its build_info.py lists {' '.join(facts.capabilities)}"
            change = f"write [{', '.join(found)}]"
            yield "capabilities", release_place(image, "gpu", key), evidence, change
