"""Compare the matrix with artifacts: every rule is a function that yields what disagrees."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import Version

from imgbuild.audit.package_index import OfferedFile
from imgbuild.dockerfile.lockfile import Lock
from imgbuild.matrix.evidence import Evidence, Facts, WheelFacts, file_tags
from imgbuild.matrix.images import Image
from imgbuild.matrix.pins import pin_location
from imgbuild.matrix.rules import rule_faults
from imgbuild.yaml_file import Location


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
        return ("horovod", image.version_of("horovod"))

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
        return Contradiction(kind, self.subject, self.place, evidence, change)

    def hashes(self, locks: Mapping[str, Lock]) -> set[str]:
        """Return the sha256 that the matrix or the locks pin."""
        if not self.python_tag:
            return {one.horovod.sha256 for one in self.images if one.horovod}
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
                *_cudnn(image, facts),
            ]
    elif facts.sha256 not in need.hashes(locks):
        change = "find out which of this and the matrix's sha256 the authors released"
        found.append(("sha256", (*need.place, "sha256"), _has_hash(facts), change))
    return tuple(
        Contradiction(kind, need.subject, place, evidence, change)
        for kind, place, evidence, change in dict.fromkeys(found)
    )


def _has_hash(facts: Facts) -> str:
    return f"{facts.file} has sha256 {facts.sha256}"


def _metadata(need: Need, facts: WheelFacts) -> Iterator[_Found]:
    same_name = canonicalize_name(facts.name) == canonicalize_name(need.distribution)
    if not same_name or facts.version != need.version:
        place = ("tensorflow", need.version, "distribution")
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


def _glibc(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    """Compare what the symbols need; the rule ``tensorflow-glibc`` judges the platform tag."""
    has = image.os.glibc
    if facts.glibc and Version(facts.glibc) > Version(has):
        place: Location = ("operating_systems", image.os_name, "glibc")
        change = f"{image.os_name} has {has}: put {image.name} on a newer operating system"
        yield "glibc", place, f"its symbols ask for glibc {facts.glibc}", change


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
        place = ("tensorflow", image.tensorflow, "distribution", image.variant)
        yield image.variant, place, evidence, f"name the distribution that is built {which}"


def _is_gpu(facts: WheelFacts) -> bool:
    return facts.version_of("cudart") is not None and facts.cuda_build is not False


def _cudnn(image: Image, facts: WheelFacts) -> Iterator[_Found]:
    """Compare the major version of the stated cuDNN; rules judge the pin by the stated one."""
    stated, loaded = image.release.cudnn, facts.version_of("cudnn") or "none"
    if image.variant == "cpu" or not _is_gpu(facts) or stated is None:
        return
    if stated.split(".")[0] != loaded.split(".")[0]:
        place: Location = ("tensorflow", image.tensorflow, "cudnn")
        evidence = f"the major version of cuDNN that it loads is {loaded}"
        yield "cudnn", place, evidence, f"write the {loaded} that it was compiled with"


def compare_rules(needs: Sequence[Need], found: Iterable[Facts]) -> Iterator[Contradiction]:
    """Yield the rules that images break by what was read just now."""
    matrix = needs[0].images[0].matrix
    evidence = Evidence({**matrix.evidence.facts, **{one.sha256: one for one in found}})
    for fault in rule_faults(matrix.with_evidence(evidence)):
        names, _, what = fault.message.rstrip(".").partition(": ")
        yield Contradiction("rule", names, fault.location, what, "change the pin")


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
