"""Read the signed documents of a published image: its provenance and its retirement.

Records are not signed, so anyone with write access to the repository can change them. The name,
tags and inputs of an image therefore come from its provenance, and the record is compared with it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from imgbuild.core.errors import CheckFailedError
from imgbuild.core.scalars import refusal_reason
from imgbuild.engine.types import AMD64
from imgbuild.matrix.images import all_images, tags_with_pins
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.tags import PLACEHOLDER, RELEASE, PlannedTags, input_tag
from imgbuild.net.repository import DamagedError
from imgbuild.net.signing import Trust
from imgbuild.publish.provenance import BUILD_TYPE, EXTENSION_TYPE
from imgbuild.publish.record import (
    BaseReference,
    Digest,
    Record,
    Release,
    Tag,
    release_order,
)
from imgbuild.suites.results import Word, attested_suites

Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
Reason = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True)
class SignedImage:
    """One publication of an image, from its provenance.

    ``release``, ``tag``, ``moving`` and ``configuration`` are None if an early imgbuild, which did
    not sign them, wrote the provenance. As in `Record`, only images from `imgbuild extend` have
    ``base``, ``lock`` and ``not_run``.
    """

    image: Word
    variant: Word
    pins: Mapping[Word, Word]
    input_digest: Digest
    verdicts: Mapping[Word, Word]
    release: Release | None = None
    tag: Tag | None = None
    moving: tuple[Tag, ...] | None = None
    configuration: Mapping[str, Any] | None = None
    base: BaseReference = ""
    lock: Word = ""
    not_run: tuple[Word, ...] = ()
    platform: Word = AMD64

    @property
    def order(self) -> tuple[int, ...]:
        """The sorting key by release; publications without a release come first."""
        return release_order(self.release) if self.release else ()

    def tags(self, matrix: Matrix) -> PlannedTags:
        """Return the tags that the image may have; `PLACEHOLDER` replaces an unsigned release.

        CheckFailedError: the tags are not signed, and the matrix has no image with this name.
        """
        if self.tag is not None and self.moving is not None:
            return PlannedTags(self.tag, self.moving)
        image = next((image for image in all_images(matrix) if image.name == self.image), None)
        if image is None:
            raise CheckFailedError(
                f"an early imgbuild wrote its provenance without tags, and matrix.yaml in this "
                f"checkout has no image {self.image} to derive them from; use a checkout with it"
            )
        return tags_with_pins(image, self.pins)

    def is_immutable(self, tag: str, matrix: Matrix) -> bool:
        """Return whether a tag is the image's immutable tag; errors as in `tags`."""
        compared = tag if self.tag else RELEASE.sub(PLACEHOLDER, tag)
        return compared == self.tags(matrix).immutable

    def may_have(self, tag: str, matrix: Matrix) -> bool:
        """Return whether a tag may point to this image; errors as in `tags`."""
        if tag == input_tag(self.input_digest):
            return True
        return tag in self.tags(matrix).moving or self.is_immutable(tag, matrix)


@dataclass(frozen=True)
class Retirement:
    """The day of an image's retirement, and the reason."""

    retired: Day
    reason: Reason

    def __str__(self) -> str:
        return f"retired on {self.retired}: {self.reason}"


_OWN_TYPES = (BUILD_TYPE, EXTENSION_TYPE)
_SIGNED = TypeAdapter(SignedImage)
_RETIREMENT = TypeAdapter(Retirement)


def read_provenances(predicates: Iterable[Mapping[str, Any]]) -> tuple[SignedImage, ...]:
    """Return the publications of an image from its attested predicates, in order of releases.

    CheckFailedError: imgbuild wrote none of them, or one cannot be read.
    """
    images = [_signed_image(predicate) for predicate in predicates if _is_own(predicate)]
    if not images:
        raise CheckFailedError("its provenance is not from imgbuild: another program built it")
    return tuple(sorted(images, key=lambda image: image.order))


def read_trusted_provenances(trust: Trust | None, reference: str) -> tuple[SignedImage, ...]:
    """Return the publications of an image that a trusted signer signed and attested.

    CheckFailedError: there is no trusted signer, or errors as in `read_provenances`.
    """
    if trust is None:
        raise CheckFailedError("nobody is trusted (--sign-key, or `verify` in the settings).")
    trust.require_signature(reference)
    return read_provenances(trust.read_attestations(reference, "slsaprovenance1"))


def _is_own(predicate: Mapping[str, Any]) -> bool:
    definition = predicate.get("buildDefinition")
    return isinstance(definition, Mapping) and definition.get("buildType") in _OWN_TYPES


def _signed_image(predicate: Mapping[str, Any]) -> SignedImage:
    try:
        external = predicate["buildDefinition"]["externalParameters"]
        internal = predicate["buildDefinition"]["internalParameters"]
        tags = external.get("tags", {})
        suites = attested_suites([predicate])
        fields = {
            "image": external["image"],
            "variant": external["variant"],
            "pins": external["pins"],
            "input_digest": internal["inputDigest"],
            "verdicts": {suite: entry["verdict"] for suite, entry in suites.items()},
            "release": external.get("release"),
            "tag": tags.get("immutable"),
            "moving": tags.get("moving"),
            "configuration": internal.get("configuration"),
            "base": external.get("base", ""),
            "lock": external.get("lock", ""),
            "not_run": external.get("suitesNotRun", ()),
            "platform": external.get("platform", AMD64),
        }
        signed = _SIGNED.validate_python(fields)
        parts = (signed.release, signed.tag, signed.moving, signed.configuration)
        if None not in parts or parts == (None,) * len(parts):
            return signed
        reason = "it has only some of release, tags and configuration"
    except ValidationError as error:
        key = ".".join(str(part) for part in error.errors()[0]["loc"])
        reason = f"{key}: {refusal_reason(error)}"
    except (KeyError, TypeError, AttributeError) as error:
        reason = repr(error)
    raise DamagedError(f"its provenance cannot be read: {reason}")


def read_retirement(predicate: Mapping[str, Any]) -> Retirement:
    """Parse a retirement; DamagedError if the predicate is invalid."""
    try:
        return _RETIREMENT.validate_python(predicate)
    except ValidationError as error:
        key = ".".join(str(part) for part in error.errors()[0]["loc"])
        text = f"its retirement cannot be read: {key}: {refusal_reason(error)}"
        raise DamagedError(text) from None


def record_differences(record: Record, signed: SignedImage, matrix: Matrix) -> Iterator[str]:
    """Yield the name of each field of a record that differs from the signed provenance.

    A record may have fewer moving tags. Errors are those of `SignedImage.tags`.
    """
    planned = signed.tags(matrix)
    release = signed.release or _release_in(record.tag)
    same = {
        "image": record.image == signed.image,
        "platform": record.platform == signed.platform,
        "variant": record.variant == signed.variant,
        "pins": dict(record.pins) == dict(signed.pins),
        "input_digest": record.input_digest == signed.input_digest,
        "tag": signed.is_immutable(record.tag, matrix),
        "moving": {*record.moving} <= {*planned.moving},
        "release": record.release == release,
        "base": record.base == signed.base,
        "lock": record.lock == signed.lock,
    }
    for name, is_same in same.items():
        if not is_same:
            yield name


def _release_in(tag: str) -> str:
    match = RELEASE.search(tag)
    return match[0] if match else ""
