"""Find images, Horovod wheels and suite verdicts in repositories, and keep new ones there.

An image has the tag ``input-<input digest>``; wheels and verdicts are OCI artifacts beside it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from imgbuild.build.context import BuildContext, BuildOptions
from imgbuild.build.horovod_wheels import TAKEN, keep_wheel, usable_wheel, wheel_keys
from imgbuild.build.result import BuildResult
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.files import json_sha256, parse_json
from imgbuild.matrix.tags import INPUT_PREFIX, input_tag
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.registry.repository import DamagedError, Manifest
from imgbuild.registry.repository_client import RegistryClient, connect
from imgbuild.settings import Settings

WHEEL_TYPE = "application/vnd.imgbuild.wheel.v1+zip"
VERDICTS_TYPE = "application/vnd.imgbuild.verdicts.v1+json"
#: So many of what was kept are named in the message.
_NAMED = 4
T = TypeVar("T")


@dataclass
class RemoteStore:
    """One repository; images move by way of the engine, with its logins, mirrors and TLS."""

    client: RegistryClient
    engine: Engine
    say: Callable[[str], None]
    failed: bool = False

    @property
    def name(self) -> str:
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
        """Pull the image of a plan; its tag stays until `untag_pulled`, as it has no other yet."""
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
        labels = {
            NAME: item.image.name,
            INPUT_DIGEST: item.digest.total,
            REPOSITORY: item.image.repository,
        }
        if found and manifest.is_image(found.id) and labels.items() <= found.labels.items():
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

    def verdicts(self, input_digest: str, layers: Sequence[str]) -> Mapping[str, Any]:
        """Return the verdicts of suites on an image with these layers, by suite.

        They are under a key of both: the input digest decides the configuration, the layers are the
        files. Together they are what suites see, whatever id an engine gives to the image.
        """
        key = _verdict_key(input_digest, layers)
        try:
            document = parse_json(self._artifact(f"verdicts-{key}", VERDICTS_TYPE) or b"null")
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
        self.client.put_artifact(f"verdicts-{key}", VERDICTS_TYPE, content, image)

    def wheel(self, key: str) -> bytes | None:
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


def _verdict_key(input_digest: str, layers: Sequence[str]) -> str:
    return json_sha256([input_digest, *layers])[:32]


def _compared(suites: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    entries = {name: entry for name, entry in suites.items() if isinstance(entry, Mapping)}
    return sorted((name, one.get("key"), one.get("verdict")) for name, one in entries.items())


def open_stores(
    options: BuildOptions, settings: Settings, engine: Engine, say: Callable[[str], None]
) -> tuple[tuple[RemoteStore, ...], tuple[RemoteStore, ...]]:
    """Return the repositories that a build reads, in this order, and those that it writes.

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


def predicted(item: PlanItem, context: BuildContext) -> PlanItem:
    """Return a plan item; if it is to be built, its reason says who has it. Nothing is fetched."""
    if item.action is not Action.BUILD:
        return item
    found = _first(context, lambda store: store.has_image(item))
    return replace(item, reason=f"{item.reason}; would be taken from {found[0]}") if found else item


def _first(context: BuildContext, read: Callable[[RemoteStore], T | None]) -> tuple[str, T] | None:
    """Return the name of the first source in which ``read`` finds something, and what it found.

    A source that fails is reported once, then ignored.
    """
    for store in context.sources:
        with store.used("cannot be read"):
            if not store.failed and (found := read(store)):
                return store.name, found
    return None


def take_from_stores(items: Sequence[PlanItem], context: BuildContext) -> tuple[PlanItem, ...]:
    """Return what is left to do after the remote stores gave what they have.

    That is images with their verdicts, verdicts on images that the engine has, and wheels for the
    images to be built.
    """
    if not context.sources:
        return tuple(items)
    left = [item for item in items if item.action in {Action.BUILD, Action.TEST}]
    came_from = {item.image.name: _take(item, context) for item in left}
    items = context.plan(test=context.options.test)
    for key in wheel_keys([one.image for one in items if one.action is Action.BUILD], context):
        _take_wheel(key, context)
    return tuple(_explained(item, came_from.get(item.image.name)) for item in items)


def _take(item: PlanItem, context: BuildContext) -> str | None:
    """Pull an image that is to be built, take the verdicts on it; return where it came from."""
    source, image = None, None
    if item.image_id:
        image = context.engine.inspect(item.image_id)
    elif pulled := _first(context, lambda store: store.pull(item)):
        source, image = pulled
    if image is None:
        return None
    layers = image.layers
    if found := _first(context, lambda store: store.verdicts(item.digest.total, layers)):
        context.store.adopt(image.id, found[1], found[0])
    return source


def _take_wheel(key: str, context: BuildContext) -> None:
    if not usable_wheel(key, context) and (found := _first(context, lambda s: s.wheel(key))):
        keep_wheel(key, found[1], context.cache / TAKEN)


def _explained(item: PlanItem, store: str | None) -> PlanItem:
    if store is None or item.action not in {Action.NAME, Action.TEST}:
        return item
    untested = ", not tested yet" if item.action is Action.TEST else ""
    return replace(item, reason=f"taken from {store}{untested}")


def untag_pulled(items: Iterable[PlanItem], context: BuildContext) -> None:
    """Take the input tags from images that have got others, also those of a killed build."""
    for store in (*context.sources, *context.targets):
        prefix = f"{store.name}:{INPUT_PREFIX}"
        with store.used("left a tag on the engine"):
            for image_id in {item.image_id for item in items if item.image_id}:
                found = context.engine.inspect(image_id)
                tags = found.tags if found else ()
                mine = [tag for tag in tags if tag.startswith(prefix)]
                for tag in mine if len(mine) < len(tags) else ():
                    context.engine.untag(tag)


def store_results(results: Sequence[BuildResult], context: BuildContext) -> None:
    """Keep what the remote stores lack: tagged images, their verdicts, and wheels."""
    for store in context.targets:
        kept: list[str] = []
        with store.used("cannot be written"):
            if not store.failed:
                kept.extend(_kept(results, context, store))
        if kept:
            more = f" and {len(kept) - _NAMED} more" if len(kept) > _NAMED else ""
            context.say(f"Kept in {store.name}: {', '.join(kept[:_NAMED])}{more}.")


def _kept(
    results: Iterable[BuildResult], context: BuildContext, store: RemoteStore
) -> Iterator[str]:
    """Keep what is new, and yield the name of each image and wheel."""
    for item, image_id in [(one.item, one.image_id) for one in results if one.ok and one.image_id]:
        if not store.has_image(item):
            store.push(item, image_id)
            yield item.image.name
        if stored := context.engine.inspect(image_id):
            suites = context.store.document(image_id)
            store.keep_verdicts(item.digest.total, stored.layers, suites)
    for key in wheel_keys([one.item.image for one in results], context):
        folder = usable_wheel(key, context)
        wheel = next(folder.iterdir()) if folder else None
        if wheel and store.keep_wheel(key, wheel.read_bytes()):
            yield wheel.name
