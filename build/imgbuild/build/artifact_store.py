"""Keep Horovod wheels and suite verdicts in a repository, as OCI artifacts beside its images."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from imgbuild.files import json_sha256, parse_strict_json
from imgbuild.matrix.tags import input_tag
from imgbuild.registry.repository import DamagedError, Manifest
from imgbuild.registry.repository_client import (
    LARGEST_BLOB,
    LARGEST_DOCUMENT,
    RegistryClient,
)

WHEEL_TYPE = "application/vnd.imgbuild.wheel.v1+zip"
VERDICTS_TYPE = "application/vnd.imgbuild.verdicts.v1+json"
#: Of their tags, before a key.
WHEEL_PREFIX, VERDICTS_PREFIX = "wheel-", "verdicts-"


@dataclass(frozen=True)
class ArtifactStore:
    """The artifacts of one repository; what is damaged there is reported, and not there."""

    client: RegistryClient
    say: Callable[[str], None]

    def verdicts(self, input_digest: str, layers: Sequence[str]) -> Mapping[str, Any]:
        """Return the verdicts of suites on an image with these layers, by suite.

        They are under a key of both: the input digest decides the configuration, the layers are the
        files. Together they are what suites see, whatever id an engine gives to the image.
        """
        key = _verdict_key(input_digest, layers)
        try:
            document = parse_strict_json(
                self._artifact(f"{VERDICTS_PREFIX}{key}", VERDICTS_TYPE) or b"null"
            )
            suites = document["suites"] if document["key"] == key else {}
        except (ValueError, KeyError, TypeError):
            return {}
        return suites if isinstance(suites, dict) else {}

    def keep_verdicts(
        self,
        input_digest: str,
        layers: Sequence[str],
        suites: Mapping[str, Any],
        subject: Manifest | None = None,
    ) -> None:
        """Keep verdicts, unless the same are there: only times are others.

        ``subject`` is the image's manifest, by default that of its input tag.
        """
        if not suites or _compared(self.verdicts(input_digest, layers)) == _compared(suites):
            return
        key = _verdict_key(input_digest, layers)
        content = json.dumps({"key": key, "suites": suites}, sort_keys=True).encode()
        image = subject or self.client.manifest(input_tag(input_digest))
        self.client.put_artifact(f"{VERDICTS_PREFIX}{key}", VERDICTS_TYPE, content, image)

    def wheel(self, key: str) -> bytes | None:
        return self._artifact(f"{WHEEL_PREFIX}{key}", WHEEL_TYPE, LARGEST_BLOB)

    def keep_wheel(self, key: str, content: bytes) -> bool:
        """Keep a Horovod wheel; return whether it is new."""
        tag = f"{WHEEL_PREFIX}{key}"
        if self.client.head(tag) is not None:
            return False
        self.client.put_artifact(tag, WHEEL_TYPE, content)
        return True

    def _artifact(self, tag: str, kind: str, most: int = LARGEST_DOCUMENT) -> bytes | None:
        try:
            found = self.client.read_artifact(tag, kind, most)
        except DamagedError as error:
            self.say(f"{error} It is made again.")
            return None
        return found.content if found else None


def _verdict_key(input_digest: str, layers: Sequence[str]) -> str:
    return json_sha256([input_digest, *layers])[:32]


def _compared(suites: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    entries = {name: entry for name, entry in suites.items() if isinstance(entry, Mapping)}
    return sorted((name, one.get("key"), one.get("verdict")) for name, one in entries.items())
