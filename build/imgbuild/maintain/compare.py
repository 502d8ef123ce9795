"""Compare the matrix with artifacts; each rule is a function that yields contradictions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from imgbuild.core.yaml_file import Location
from imgbuild.locks.lockfile import Lock
from imgbuild.maintain.package_index import OfferedFile
from imgbuild.matrix.evidence import (
    MACHINES,
    Architecture,
    Evidence,
    Facts,
    WheelFacts,
    file_tags,
    tag_machine,
)
from imgbuild.matrix.images import Image
from imgbuild.matrix.pins import distribution_key, locate_pin
from imgbuild.matrix.rules import find_rule_faults

ArtifactState = Literal["read", "cached", "evidence", "offered", "verified", "missing", "unread"]


@dataclass(frozen=True)
class Contradiction:
    """A pin that disagrees with an artifact.

    ``place`` is a location in matrix.yaml, or the path of a lock.
    """

    kind: str
    subject: str
    place: Location | str
    evidence: str
    change: str


@dataclass(frozen=True)
class Artifact:
    """A file of the package index, the images that use it, and the result of its audit.

    It is a TensorFlow wheel for one Python, or Horovod's source distribution, which has no
    ``python_tag``. ``state`` says where its facts are from, or why there are none.
    """

    distribution: str
    version: str
    python_tag: str
    images: tuple[Image, ...]
    state: ArtifactState = "missing"
    facts: Facts | None = None
    bytes_read: int = 0
    seconds: float = 0.0
    problem: str = ""
    contradictions: tuple[Contradiction, ...] = ()
    architecture: Architecture = "amd64"

    @property
    def subject(self) -> str:
        return _subject_for(self.distribution, self.version, self.architecture)

    @property
    def title(self) -> str:
        if self.python_tag:
            machine = MACHINES[self.architecture]
            release = f"{self.distribution} {self.version}"
            return f"wheel of {release} for {self.python_tag} on Linux, {machine}"
        return f"source distribution of {self.subject}"

    @property
    def place(self) -> Location:
        image = self.images[0]
        if self.python_tag:
            return ("images", image.matrix.images.index(image.row))
        return ("horovod", image.version_of("horovod"))

    def fits(self, file: str) -> bool:
        """Return whether the file is this version's, for this Python and machine on Linux."""
        name = canonicalize_name(self.distribution).replace("-", "_")
        start = f"{name}-{self.version}"
        if not self.python_tag:
            return file == f"{start}.tar.gz"
        if not file.startswith(f"{start}-"):
            return False
        for tag in file_tags(file):
            is_ours = tag_machine(tag) == MACHINES[self.architecture]
            if is_ours and tag.interpreter == self.python_tag:
                return True
        return False

    def contradiction(self, kind: str, evidence: str, change: str) -> Contradiction:
        return Contradiction(kind, self.subject, self.place, evidence, change)

    def hashes(self, locks: Mapping[str, Lock]) -> set[str]:
        """Return the sha256 digests pinned in the matrix or the locks."""
        if not self.python_tag:
            return {image.horovod.sha256 for image in self.images if image.horovod}
        hashes = set[str]()
        for image in self.images:
            hashes.update(_locked_hashes(image, locks))
        return hashes


def compare(artifact: Artifact, locks: Mapping[str, Lock]) -> tuple[Contradiction, ...]:
    """Return the contradictions between a file and the images that use it."""
    facts = artifact.facts
    contradictions: list[Contradiction] = []
    if isinstance(facts, WheelFacts):
        for image in artifact.images:
            contradictions += _compare_metadata(image, facts)
            contradictions += _compare_tags(image, facts)
            contradictions += _compare_glibc(image, facts)
            contradictions += _compare_lock(image, facts, locks)
            contradictions += _compare_variant(image, facts)
            contradictions += _compare_cudnn(image, facts)
    elif facts and facts.sha256 not in artifact.hashes(locks):
        place = (*artifact.place, "sha256")
        change = "find out whether the authors released this sha256 or the one in matrix.yaml"
        evidence = _has_hash(facts)
        contradictions.append(Contradiction("sha256", artifact.subject, place, evidence, change))
    return tuple(dict.fromkeys(contradictions))


def _subject(image: Image) -> str:
    return _subject_for(image.distribution, image.tensorflow, image.architecture)


def _subject_for(distribution: str, version: str, architecture: Architecture) -> str:
    """Return the subject of messages; on two architectures, one package has other wheels."""
    other = "" if architecture == "amd64" else f" for {architecture}"
    return f"{distribution} {version}{other}"


def _has_hash(facts: Facts) -> str:
    return f"{facts.file} has sha256 {facts.sha256}"


def _compare_metadata(image: Image, facts: WheelFacts) -> Iterator[Contradiction]:
    same_name = canonicalize_name(facts.name) == canonicalize_name(image.distribution)
    if not same_name or facts.version != image.tensorflow:
        place = ("tensorflow", image.tensorflow, "distribution")
        evidence = f"the wheel's own METADATA says {facts.name} {facts.version}"
        change = "the index offers another package under this name; do not build from it"
        yield Contradiction("metadata", _subject(image), place, evidence, change)


def _compare_tags(image: Image, facts: WheelFacts) -> Iterator[Contradiction]:
    tag = image.python.wheel_tag
    named = {file_tag.interpreter for file_tag in file_tags(facts.file)}
    inside = {text.partition("-")[0] for text in facts.tags}
    for where, interpreters in (("file name", named), ("WHEEL file", inside)):
        if tag not in interpreters:
            place = locate_pin(image.matrix, image.row, "python")
            listed = " ".join(sorted(interpreters)) or "for no Python"
            evidence = f"its {where} has the tags {listed}"
            change = (
                f"{image.name} has Python {image.version_of('python')} ({tag}): pin a Python with "
                "wheels of this release"
            )
            yield Contradiction("python", _subject(image), place, evidence, change)


def _compare_glibc(image: Image, facts: WheelFacts) -> Iterator[Contradiction]:
    """Compare the glibc that symbols require; the rule ``tensorflow-glibc`` checks the tag."""
    has = image.os.glibc
    if facts.glibc and Version(facts.glibc) > Version(has):
        place = ("operating_systems", image.os_name, "glibc")
        evidence = f"its symbols require glibc {facts.glibc}"
        change = f"{image.os_name} has {has}: use a newer operating system for {image.name}"
        yield Contradiction("glibc", _subject(image), place, evidence, change)


def _compare_lock(
    image: Image, facts: WheelFacts, locks: Mapping[str, Lock]
) -> Iterator[Contradiction]:
    hashes = _locked_hashes(image, locks)
    if image.lock_name in locks and facts.sha256 not in hashes:
        place = f"images/locks/{image.lock_name}"
        change = (
            f"the lock's {len(hashes)} hashes do not include it: run `imgbuild lock` and read the "
            "diff"
        )
        yield Contradiction("lock", _subject(image), place, _has_hash(facts), change)


def _locked_hashes(image: Image, locks: Mapping[str, Lock]) -> tuple[str, ...]:
    lock = locks.get(image.lock_name)
    return lock.hashes.get(canonicalize_name(image.distribution), ()) if lock else ()


def _compare_variant(image: Image, facts: WheelFacts) -> Iterator[Contradiction]:
    if image.variant == "gpu":
        wrong, expected = not _is_gpu(facts), "with CUDA, usually tensorflow-gpu"
    else:
        wrong = bool(facts.libraries or facts.cuda_build)
        expected = "without CUDA"
        if image.architecture == "amd64":
            expected += "; there is none if tensorflow-cpu lacks this release"
    if wrong:
        loaded = " ".join(facts.libraries) or "no GPU library"
        evidence = (
            f"it loads {loaded}, and its build_info.py says is_cuda_build = {facts.cuda_build}"
        )
        key = distribution_key(image.variant, image.architecture)
        place = ("tensorflow", image.tensorflow, "distribution", key)
        change = f"name the distribution that is built {expected}"
        yield Contradiction(image.variant, _subject(image), place, evidence, change)


def _is_gpu(facts: WheelFacts) -> bool:
    return facts.version_of("cudart") is not None and facts.cuda_build is not False


def _compare_cudnn(image: Image, facts: WheelFacts) -> Iterator[Contradiction]:
    """Compare the major version of cuDNN in the matrix; rules compare the pin with that."""
    stated = image.release.cudnn
    loaded = facts.version_of("cudnn") or "none"
    if image.variant == "cpu" or not _is_gpu(facts) or stated is None:
        return
    if stated.split(".")[0] != loaded.split(".")[0]:
        place = ("tensorflow", image.tensorflow, "cudnn")
        evidence = f"it loads cuDNN with the major version {loaded}"
        change = f"write the full version of cuDNN {loaded} that it was compiled with"
        yield Contradiction("cudnn", _subject(image), place, evidence, change)


def compare_rules(artifacts: Sequence[Artifact]) -> Iterator[Contradiction]:
    """Yield the rules that images violate according to the freshly read facts."""
    matrix = artifacts[0].images[0].matrix
    fresh = {artifact.facts.sha256: artifact.facts for artifact in artifacts if artifact.facts}
    evidence = Evidence({**matrix.evidence.facts, **fresh})
    audited = matrix.with_evidence(evidence)
    for fault in find_rule_faults(audited):
        names, _, sentence = fault.message.rstrip(".").partition(": ")
        yield Contradiction("rule", names, fault.location, sentence, "change the pin")


def compare_locks(
    locks: Mapping[str, Lock], pages: Mapping[str, Mapping[str, OfferedFile]]
) -> Iterator[Contradiction]:
    """Yield locked files that the index no longer has, or that were yanked."""
    for file_name, lock in locks.items():
        for name, hashes in lock.hashes.items():
            offered = {file.sha256: file for file in pages[name].values()}
            for kind, evidence in _compare_offered(hashes, offered):
                yield Contradiction(
                    kind,
                    subject=f"{name} {lock.versions[name]}",
                    place=f"images/locks/{file_name}",
                    evidence=evidence,
                    change="run `imgbuild lock --upgrade`, or pin another version in matrix.yaml",
                )


def _compare_offered(
    hashes: Sequence[str], offered: Mapping[str, OfferedFile]
) -> Iterator[tuple[str, str]]:
    """Yield kind and evidence if files of a release are missing from the index, or yanked."""
    gone = [sha256 for sha256 in hashes if sha256 not in offered]
    if gone:
        text = f"the index no longer has {len(gone)} of {len(hashes)} files: sha256 {gone[0]}"
        if len(gone) > 1:
            text += " …"
        yield "gone", text
    files = [offered[sha256] for sha256 in hashes if sha256 in offered]
    yanked = [file for file in files if file.yanked]
    if yanked:
        yield "yanked", f"{yanked[0].name} was yanked: {yanked[0].yanked}"
