"""The index of a release: one manifest with the release's images for all platforms.

A push makes it as soon as all images of the release are published, so it never changes. Its tag is
the immutable tag of the image for linux/amd64 plus ``-index``, and the moving tags of that image
point to it.

Source: OCI image specification 1.1, "Image Index".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from imgbuild.engine.types import AMD64, ARM64
from imgbuild.matrix.tags import INDEX_SUFFIX
from imgbuild.net.repository import (
    DIGEST,
    INDEXES,
    DamagedError,
    Manifest,
    descriptor,
    digest_of,
)
from imgbuild.publish.record import Record

#: The type of an index that a push makes.
INDEX_TYPE = INDEXES[0]
_KEYS = {"schemaVersion", "mediaType", "manifests"}
_DESCRIPTOR_KEYS = {"mediaType", "digest", "size", "platform"}


@dataclass(frozen=True)
class PlannedIndex:
    """The index of a release whose other images are published.

    - ``content``: None as long as the image of this push has no manifest
    - ``refused``: why the push does not make the index; then only ``tag`` is set
    - ``present``: whether it is in the registry, signed if the push signs
    - ``digests``: the present digests of the moving tags that will point to it
    - ``kept``: sentences about moving tags that stay at a later release
    """

    tag: str
    content: bytes | None = None
    refused: str = ""
    present: bool = False
    digests: Mapping[str, str | None] = field(default_factory=dict)
    kept: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The digest of the index; empty if its content is not known yet."""
        return digest_of(self.content) if self.content else ""

    @property
    def moves(self) -> tuple[str, ...]:
        """The moving tags that do not point to the index yet."""
        return tuple(tag for tag, digest in self.digests.items() if digest != self.digest)


def index_content(manifests: Mapping[str, Manifest]) -> bytes:
    """Return the index of the images with these manifests, by platform.

    The same images always give the same bytes.
    """
    entries = []
    for platform, manifest in sorted(manifests.items()):
        os, _, architecture = platform.partition("/")
        entry = descriptor(manifest.media_type, manifest.content)
        entries.append({**entry, "platform": {"architecture": architecture, "os": os}})
    document = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries}
    return json.dumps(document).encode()


def is_index(manifest: Manifest) -> bool:
    """Return whether the registry says that a manifest lists several images."""
    return manifest.media_type in INDEXES


def read_index(manifest: Manifest) -> dict[str, str]:
    """Return the digest of the image for each platform in an index.

    DamagedError: a push would not write this index.
    """
    document = manifest.document()
    listed = document.get("manifests")
    digests: dict[str, str] = {}
    for entry in listed if isinstance(listed, list) else []:
        platform = entry.get("platform") if isinstance(entry, Mapping) else None
        if not isinstance(platform, Mapping) or entry.keys() != _DESCRIPTOR_KEYS:
            break
        digest = str(entry["digest"])
        if DIGEST.fullmatch(digest):
            digests[_platform(platform)] = digest
    is_whole = isinstance(listed, list) and len(digests) == len(listed)
    if not is_whole or document.keys() != _KEYS or not {AMD64, ARM64} == digests.keys():
        raise DamagedError(f"{manifest.digest} is not an index that imgbuild writes.")
    return digests


def listed_digests(manifest: Manifest) -> set[str]:
    """Return the digests in an index, also in one of another program; none in other manifests."""
    if not is_index(manifest):
        return set()
    try:
        entries = manifest.document().get("manifests", ())
    except DamagedError:
        return set()
    return {str(entry.get("digest")) for entry in entries if isinstance(entry, Mapping)}


def member_tag(tag: str, platform: str) -> str:
    """Return the tag of an image in an index from the index's tag, which may be empty."""
    stem = tag.removesuffix(INDEX_SUFFIX)
    architecture = platform.partition("/")[2]
    return stem if platform == AMD64 or not stem else f"{stem}-{architecture}"


def _platform(platform: Mapping[str, Any]) -> str:
    """Return a platform as Docker names it; empty if it has other parts, such as a variant."""
    if platform.keys() != {"architecture", "os"}:
        return ""
    return f"{platform['os']}/{platform['architecture']}"


def differing_versions(versions: Mapping[str, str], other: Record) -> list[str]:
    """Return the names with both versions that differ in another image of one release.

    ``versions`` are the pins and packages of an image. One of both images may have an empty package
    in place of a package of the other. An empty package has a local version (`Image.provided`).
    """
    their = {**other.pins, **other.packages}
    return [
        f"{name} {versions[name]} and {their[name]}"
        for name in sorted(versions.keys() & their.keys())
        if versions[name].partition("+")[0] != their[name].partition("+")[0]
    ]
