"""Find images, Horovod wheels and suite verdicts in a repository, and keep new ones there.

An image has the tag ``input-<input digest>``; wheels and verdicts are OCI artifacts beside it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from imgbuild.build.context import BuildOptions
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.files import json_sha256
from imgbuild.matrix.tags import INPUT_PREFIX, input_tag
from imgbuild.plan.plan import PlanItem
from imgbuild.registry.repository import DamagedError, Manifest
from imgbuild.registry.repository_client import RegistryClient, connect
from imgbuild.settings import Settings

WHEEL_TYPE = "application/vnd.imgbuild.wheel.v1+zip"
VERDICTS_TYPE = "application/vnd.imgbuild.verdicts.v1+json"


@dataclass
class RemoteStore:
    """One repository; images move by way of the engine, with its logins, mirrors and TLS."""

    client: RegistryClient
    engine: Engine
    say: Callable[[str], None]
    failed: bool = False

    @property
    def name(self) -> str:
        """The repository."""
        return self.client.name

    @contextmanager
    def used(self, fault: str) -> Iterator[None]:
        """Report an error of the block, with what ``fault`` says: the store fails no build."""
        try:
            yield
        except (ImgbuildError, OSError) as error:
            self.failed = True
            self.say(f"The repository {self.name} {fault}; going on without it. {error}")

    def has_image(self, item: PlanItem) -> bool:
        """Return whether there is an image with this input digest; nothing is pulled."""
        return self.client.head(input_tag(item.digest.total)) is not None

    def pull(self, item: PlanItem) -> StoredImage | None:
        """Pull the image of a plan; its tag here stays until `release`, as it has no other yet."""
        tag = input_tag(item.digest.total)
        manifest = self.client.manifest(tag)
        if manifest is None:
            return None
        reference = f"{self.name}:{tag}"
        try:
            self.engine.pull(reference)
        except CheckFailedError as error:
            self.say(f"{item.image.name} cannot be pulled from {self.name}: {error}")
            return None
        found = self.engine.inspect(reference)
        if found and manifest.is_image(found.id) and _says_so(found, item):
            return found
        self.engine.untag(reference)
        self.say(f"{reference} is not {item.image.name}, as its tag says; it is built here.")
        return None

    def push(self, item: PlanItem, image_id: str) -> None:
        """Push an image; layers that the registry has are not sent."""
        reference = f"{self.name}:{input_tag(item.digest.total)}"
        try:
            self.engine.tag(image_id, reference)
            self.engine.push(reference)
        finally:
            self.engine.untag(reference)

    def release(self, image_id: str) -> None:
        """Take this store's tags from an image that has others, also those of a killed build."""
        found = self.engine.inspect(image_id)
        tags = found.tags if found else ()
        mine = [tag for tag in tags if tag.startswith(f"{self.name}:{INPUT_PREFIX}")]
        for tag in mine if len(mine) < len(tags) else ():
            self.engine.untag(tag)

    def verdicts(self, input_digest: str, layers: Sequence[str]) -> Mapping[str, Any]:
        """Return the verdicts of suites on an image with these layers, by suite."""
        key = verdict_key(input_digest, layers)
        content = self._artifact(f"verdicts-{key}", VERDICTS_TYPE)
        return _suites(content, key) if content else {}

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
        key = verdict_key(input_digest, layers)
        content = json.dumps({"key": key, "suites": suites}, sort_keys=True).encode()
        image = subject or self.client.manifest(input_tag(input_digest))
        self.client.put_artifact(f"verdicts-{key}", VERDICTS_TYPE, content, image)

    def wheel(self, key: str) -> bytes | None:
        """Return the Horovod wheel of a key."""
        return self._artifact(f"wheel-{key}", WHEEL_TYPE)

    def keep_wheel(self, key: str, content: bytes) -> bool:
        """Keep a Horovod wheel; return whether it is new."""
        tag = f"wheel-{key}"
        if self.client.head(tag) is not None:
            return False
        self.client.put_artifact(tag, WHEEL_TYPE, content)
        return True

    def _artifact(self, tag: str, kind: str) -> bytes | None:
        try:
            found = self.client.read_artifact(tag, kind)
        except DamagedError as error:
            self.say(f"{error} It is made again.")
            return None
        return found.content if found else None


def open_stores(
    options: BuildOptions, settings: Settings, engine: Engine, say: Callable[[str], None]
) -> tuple[tuple[RemoteStore, ...], tuple[RemoteStore, ...]]:
    """Return the repositories that a build reads, in this order, and those that it writes.

    Raises:
        InputError: one is not the name of a repository, or ``--pull`` has none.

    """
    stores: dict[str, RemoteStore] = {}

    def opened(names: Sequence[str | None], option: str) -> dict[str, RemoteStore]:
        clients = [connect(name, settings, say, option) for name in names]
        return {
            one.name: stores.setdefault(one.name, RemoteStore(one, engine, say)) for one in clients
        }

    pulled = opened([options.pull_from] if options.pull else [], "--from")
    sources = pulled | opened(options.cache_from, "--cache-from")
    return tuple(sources.values()), tuple(opened(options.cache_to, "--cache-to").values())


def verdict_key(input_digest: str, layers: Sequence[str]) -> str:
    """Return the key of an image's verdicts, in 32 hexadecimal digits.

    The input digest decides the configuration, the layers are the files: together they are what
    suites see, whatever id an engine gives to the image.
    """
    return json_sha256([input_digest, *layers])[:32]


def _says_so(found: StoredImage, item: PlanItem) -> bool:
    """Return whether an image's labels are those of the plan's image."""
    image = item.image
    expected = {NAME: image.name, INPUT_DIGEST: item.digest.total, REPOSITORY: image.repository}
    return expected.items() <= found.labels.items()


def _suites(content: bytes, key: str) -> Mapping[str, Any]:
    """Return the verdicts of an artifact, if they are those of this key."""
    try:
        document = json.loads(content)
        suites = document["suites"] if document["key"] == key else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return suites if isinstance(suites, dict) else {}


def _compared(suites: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    entries = {name: entry for name, entry in suites.items() if isinstance(entry, Mapping)}
    return sorted((name, one.get("key"), one.get("verdict")) for name, one in entries.items())
