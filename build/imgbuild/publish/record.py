"""Read and write the records of published images, and list the records and tags of a repository.

A record is an artifact with the image as its subject. Its tag is the image's immutable tag plus
``.record``, because not every registry can list artifacts by subject.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from imgbuild.core.parallel import in_parallel
from imgbuild.core.scalars import Timestamp, refusal_reason
from imgbuild.engine.types import AMD64
from imgbuild.matrix.tags import (
    INDEX_SUFFIX,
    INPUT_PREFIX,
    RECORD_SUFFIX,
    RELEASE,
    TAG,
    index_tag,
    record_tag,
)
from imgbuild.net.repository import LARGEST_BLOB, DamagedError, Manifest
from imgbuild.net.repository_client import REQUESTS, RegistryClient
from imgbuild.suites.results import SuiteResult, Word

ARTIFACT_TYPE = "application/vnd.imgbuild.record.v1+json"
#: The annotation for the day of retirement; other tools also read it.
#: Source: Azure Container Registry, lifecycle artifacts.
END_OF_LIFE = "vnd.microsoft.artifact.lifecycle.end-of-life.date"
#: Increase it when records change in a way that older imgbuild versions would misread.
SCHEMA = 1

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Tag = Annotated[str, Field(pattern=f"^{TAG.pattern}$")]
Release = Annotated[str, Field(pattern=r"^[0-9]{8}\.[1-9][0-9]{0,3}$")]
#: The name and digest of an image.
BaseReference = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x20\x7f]*$")]


@dataclass(frozen=True)
class Record:
    """One published image.

    - ``size``: bytes of configuration and layers in the registry
    - ``tag``: the immutable tag
    - ``moving``: the tags that were moved to the image when it was published
    - ``report``: results by suite, so that the image need not be tested again after a pull
    - ``published``: the time in UTC
    """

    image: Word
    digest: Digest
    image_id: Digest
    size: Annotated[int, Field(ge=0, lt=LARGEST_BLOB)]
    release: Release
    tag: Tag
    moving: tuple[Tag, ...]
    input_digest: Digest
    variant: Word
    stack: Word
    pins: Mapping[Word, Word]
    report: Mapping[Word, SuiteResult]
    substitutes: tuple[str, ...]
    published: Timestamp
    #: The versions of all Python packages.
    packages: Mapping[Word, Word] = field(default_factory=dict)
    #: The snapshot time of each distribution's archive, if the settings set one.
    snapshots: Mapping[Word, Word] = field(default_factory=dict)
    #: The versions of all system packages, from the SBOM.
    system: Mapping[Word, Word] = field(default_factory=dict)
    #: The sum of the times of its build steps; 0 if unknown.
    build_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    #: The day of retirement and the reason; both are empty if the image is not retired.
    retired: Annotated[str, Field(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$")] = ""
    retired_reason: Word = ""
    #: For images from `imgbuild extend`: the base with its digest, the digest of the lock, and the
    #: base's suites that did not run.
    base: BaseReference = ""
    lock: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    not_run: tuple[Word, ...] = ()
    #: Records of images for linux/amd64 do not have it, as those of earlier versions.
    platform: Annotated[str, Field(pattern=r"^[a-z0-9]+/[a-z0-9]+$")] = AMD64

    @property
    def age(self) -> tuple[str, tuple[int, ...], str]:
        """The sorting key by time of publication."""
        return self.published, release_order(self.release), self.tag

    @property
    def short_digest(self) -> str:
        """The first 12 digits of the digest, as engines show it."""
        return self.digest.removeprefix("sha256:")[:12]

    def as_json(self) -> dict[str, Any]:
        document = {"schema": SCHEMA, **asdict(self)}
        if self.platform == AMD64:
            del document["platform"]
        document["report"] = {suite: result.as_json() for suite, result in self.report.items()}
        # A summary for people and other programs; imgbuild ignores it.
        document["suites"] = [_short_result(result) for result in self.report.values()]
        return document


_RECORD = TypeAdapter(Record)


def release_order(release: str) -> tuple[int, ...]:
    """Return the sorting key of a release, so that the tenth of a day comes after the ninth."""
    return tuple(map(int, release.split(".")))


def _short_result(result: SuiteResult) -> dict[str, Any]:
    return {
        "suite": result.suite,
        "verdict": result.verdict,
        "passed": result.passed,
        "skipped": len(result.skipped),
        "reasons": [*result.skip_reasons],
    }


def parse_record(document: Mapping[str, Any], where: str) -> Record:
    """Parse a record; ignore unknown keys, which a later imgbuild may have added.

    DamagedError: the document is not a record, or this imgbuild cannot read it.
    """
    schema = document.get("schema")
    if schema != SCHEMA:
        raise DamagedError(
            f"{where} is a record of schema {schema!r}; this imgbuild version reads {SCHEMA}"
        )
    try:
        return _RECORD.validate_python(document)
    except ValidationError as error:
        key = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise DamagedError(f"{where} is not a record: {key}: {refusal_reason(error)}") from None


def put_record(registry: RegistryClient, record: Record, image: Manifest) -> None:
    """Store an image's record in the registry; CheckFailedError if it would not be readable."""
    document = record.as_json()
    tag = record_tag(record.tag)
    parse_record(document, tag)
    content = json.dumps(document, sort_keys=True, ensure_ascii=False).encode()
    annotations = {END_OF_LIFE: record.retired} if record.retired else {}
    registry.put_artifact(tag, ARTIFACT_TYPE, content, image, annotations)


def read_record(registry: RegistryClient, tag: str) -> Record | None:
    """Return the record of an immutable tag, or None; DamagedError if it is of another image."""
    artifact = registry.read_artifact(record_tag(tag), ARTIFACT_TYPE)
    if artifact is None:
        return None
    document, subject = artifact
    where = f"{registry.name}:{record_tag(tag)}"
    record = parse_record(document, where)
    if record.tag != tag or subject != record.digest:
        raise DamagedError(
            f"{where} belongs to another image: it is about {record.tag} with {record.digest}, and "
            f"its subject is {subject}."
        )
    return record


@dataclass(frozen=True)
class PublishedRepository:
    """The content of a repository: ``records``, the latest last, and the digests of their tags.

    ``damaged`` are sentences about records that cannot be read.
    """

    name: str
    records: tuple[Record, ...]
    digests: Mapping[str, str]
    tags: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    @cached_property
    def whole(self) -> tuple[Record, ...]:
        """The records whose immutable tag points to the recorded image."""
        records = self.records
        return tuple(record for record in records if self.digests.get(record.tag) == record.digest)

    def index(self, record: Record) -> str:
        """Return the digest of a release's index, by its image for linux/amd64; empty if none."""
        return self.digests.get(index_tag(record.tag), "")

    def moving(self, record: Record) -> tuple[str, ...]:
        """Return the moving tags that currently point to an image, or to the index with it."""
        here = {record.digest, self.index(record)}
        return tuple(tag for tag in record.moving if self.digests.get(tag) in here)

    def image_at(self, tag: str) -> Record | None:
        """Return the published image that a tag points to; of an index, the one for linux/amd64."""
        digest = self.digests.get(tag)
        for record in reversed(self.whole):
            if digest and digest in {record.digest, self.index(record)}:
                return record
        return None

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each damaged record, and each tag that contradicts the records."""
        yield from self.damaged
        expected = [(record.tag, record) for record in self.records]
        for tag, record in self._latest.items():
            if self.image_at(tag) is None:
                expected.append((tag, record))
        for tag, record in expected:
            digest = self.digests.get(tag)
            if digest != record.digest:
                state = f"is {digest}" if digest else "is missing"
                yield (
                    f"{self.name}:{tag} {state}, but the record of {record.tag} says "
                    f"{record.digest}."
                )

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each tag that is valid but may be unexpected."""
        for tag, record in self._latest.items():
            present, index = self.image_at(tag), self.index(record)
            if present and self.digests.get(tag) not in {record.digest, index}:
                why = "it was moved back, or a push was interrupted"
                if self.digests.get(tag) == self.index(present):
                    why += ", or the later release lacks the image for another platform"
                yield (
                    f"{self.name}:{tag} is at {present.tag}, not at the later {record.tag}: {why}. "
                    f"Push {record.image} to complete it."
                )
            elif index and self.digests.get(tag) == record.digest:
                yield (
                    f"{self.name}:{tag} is at {record.tag}, not at its index for all platforms. "
                    f"Push {record.image} to complete it."
                )
        tags = {*self.tags}
        for tag in self.tags:
            is_other = tag.endswith((RECORD_SUFFIX, INDEX_SUFFIX))
            release = None if is_other else RELEASE.search(tag)
            if release and record_tag(tag) not in tags:
                yield (
                    f"{self.name}:{tag} has no record: its push was interrupted, or is running. To "
                    f"complete it, push the same image with --release {release[0]}."
                )

    @property
    def _latest(self) -> Mapping[str, Record]:
        """The last published image with each moving tag."""
        latest: dict[str, Record] = {}
        for record in self.records:
            latest |= dict.fromkeys(record.moving, record)
        return latest


def read_published(registry: RegistryClient) -> PublishedRepository:
    """Read the records and tags of a repository; it may be empty."""
    damaged: list[str] = []

    def read(tag: str) -> Record | None:
        try:
            return read_record(registry, tag.removesuffix(RECORD_SUFFIX))
        except DamagedError as error:
            damaged.append(str(error))
            return None

    tags = registry.tags()
    record_tags = [tag for tag in tags if tag.endswith(RECORD_SUFFIX)]
    readable = filter(None, in_parallel(read, record_tags, REQUESTS))
    records = sorted(readable, key=lambda record: record.age)
    named: set[str] = set()
    for record in records:
        named |= {record.tag, index_tag(record.tag), *record.moving}
    digests = registry.heads(sorted(named.intersection(tags)))
    return PublishedRepository(registry.name, tuple(records), digests, tags, tuple(sorted(damaged)))


def read_build_seconds(registry: RegistryClient) -> dict[str, float]:
    """Return the seconds to build and test the latest release of each image, if known."""
    seconds: dict[str, float] = {}
    for record in read_published(registry).records:
        if record.build_seconds:
            suites = sum(result.seconds for result in record.report.values())
            seconds[record.image] = record.build_seconds + suites
    return seconds


def read_input_tags(registry: RegistryClient) -> frozenset[str]:
    """Return the input tags of all published images."""
    return frozenset(tag for tag in registry.tags() if tag.startswith(INPUT_PREFIX))
