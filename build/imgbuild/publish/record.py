"""The record of one published image: an artifact with the image as subject.

It is also found under the image's immutable tag with ``.record``, since not every registry lists
artifacts by subject.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from imgbuild.errors import CheckFailedError
from imgbuild.matrix.tags import record_tag
from imgbuild.registry.repository import DamagedError, Manifest
from imgbuild.registry.repository_client import RegistryClient
from imgbuild.scalars import Timestamp

ARTIFACT_TYPE = "application/vnd.imgbuild.record.v1+json"
#: Counted up when records change so that older imgbuilds would misread them.
SCHEMA = 1

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
#: Source: the grammar of a reference as a tag in the OCI distribution specification.
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
_NUMBERS = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class SuiteRecord:
    """What one suite found: its verdict, the number of its checks, and why some were skipped."""

    suite: str
    verdict: str
    passed: int
    skipped: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """One published image. ``size`` is that of configuration and layers in the registry, in bytes.

    ``tag`` is immutable; ``moving`` are the tags that were moved to the image when it was
    published. ``report`` is all that the store of reports remembers of it, so that who pulls the
    image need not test it again. ``published`` is in UTC.
    """

    image: str
    digest: Digest
    image_id: Digest
    size: Annotated[int, Field(ge=0)]
    release: str
    tag: Tag
    moving: tuple[Tag, ...]
    input_digest: Digest
    variant: str
    stack: str
    pins: Mapping[str, str]
    suites: tuple[SuiteRecord, ...]
    report: Mapping[str, Any]
    substitutes: tuple[str, ...]
    published: Timestamp

    @property
    def age(self) -> tuple[str, tuple[int, ...], str]:
        """What sorts records: the later published one is greater."""
        release = tuple(int(number) for number in _NUMBERS.findall(self.release))
        return self.published, release, self.tag

    def as_json(self) -> dict[str, Any]:
        """Return the document."""
        return {"schema": SCHEMA, **asdict(self)}


def image_size(manifest: Manifest) -> int:
    """Return the bytes of configuration and layers, packed as the registry holds them.

    Raises:
        CheckFailedError: it lists the images of several platforms.

    """
    document = manifest.document()
    if "config" not in document or "layers" not in document:
        raise CheckFailedError(
            f"{manifest.digest} is the manifest of several platforms, not of one image: imgbuild "
            "publishes images that it has built itself. Build it again."
        )
    return sum(int(part["size"]) for part in (document["config"], *document["layers"]))


def record_of(document: object) -> Record:
    """Return the record that a document holds; other keys are from a later imgbuild.

    Raises:
        DamagedError: it is no record, or one that this imgbuild cannot read.

    """
    if not isinstance(document, Mapping):
        raise DamagedError("a record is a JSON object, and this is none")
    schema = document.get("schema")
    if schema != SCHEMA:
        raise DamagedError(f"it is a record of schema {schema!r}; this imgbuild reads {SCHEMA}")
    try:
        return _adapter().validate_python(dict(document))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DamagedError(f"it is no record: {where}: {first['msg']}") from None


def put_record(registry: RegistryClient, record: Record) -> str:
    """Store the record of an image that is there; return the record's digest.

    Raises:
        CheckFailedError: the image is not there, or the record is too large to read.

    """
    document = record.as_json()
    record_of(document)
    image = registry.manifest(record.digest)
    if image is None:
        raise CheckFailedError(
            f"{registry.name}@{record.digest} is not there: nothing is recorded."
        )
    content = json.dumps(document, sort_keys=True, ensure_ascii=False).encode()
    return registry.put_artifact(record_tag(record.tag), ARTIFACT_TYPE, content, image)


def read_record(registry: RegistryClient, tag: str) -> Record | None:
    """Return the record of the image with an immutable tag, or ``None`` if there is none.

    Raises:
        DamagedError: what is there is not a record of this image.

    """
    artifact = registry.read_artifact(record_tag(tag), ARTIFACT_TYPE)
    if artifact is None:
        return None
    try:
        record = record_of(artifact.document())
    except DamagedError as error:
        raise DamagedError(f"{artifact.where}: {error}") from error
    if record.tag != tag or artifact.subject != record.digest:
        raise DamagedError(
            f"{artifact.where} is about {record.tag} with {record.digest}, its subject is "
            f"{artifact.subject}: it is another image's."
        )
    return record


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Record)
