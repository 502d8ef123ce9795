"""Find images, Horovod wheels and suite verdicts in repositories, and keep new ones there.

An image has the tag ``input-<input digest>``; wheels and verdicts are OCI artifacts beside it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from imgbuild.build.artifact_store import ArtifactStore
from imgbuild.build.context import BuildContext
from imgbuild.build.horovod_wheels import WheelCache, wheel_key
from imgbuild.build.result import BuildResult
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.matrix.tags import INPUT_PREFIX, input_tag
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.registry.repository import Manifest
from imgbuild.registry.repository_client import RegistryClient, connect
from imgbuild.registry.signing import Trust, attested_suites, trust_of
from imgbuild.settings import Settings

#: So many of what was kept are named in the message.
_NAMED = 4
T = TypeVar("T")


@dataclass
class RemoteStore:
    """One repository; images move by way of the engine, with its logins, mirrors and TLS."""

    client: RegistryClient
    say: Callable[[str], None]
    #: Whose signature images must have; then wheels, which have none, are not taken, and verdicts
    #: only from the images' provenance.
    trust: Trust | None = None
    failed: bool = False

    @property
    def name(self) -> str:
        return self.client.name

    @property
    def artifacts(self) -> ArtifactStore:
        return ArtifactStore(self.client, self.say)

    @contextmanager
    def used(self, fault: str) -> Iterator[None]:
        """Report an error of the block, with what ``fault`` says: the store fails no build."""
        try:
            yield
        except (ImgbuildError, OSError) as error:
            self.failed = True
            self.say(f"The repository {self.name} {fault}; continuing without it. {error}")

    def has_image(self, item: PlanItem) -> bool:
        """Return whether there is an image with this input digest; nothing is pulled."""
        return self.client.head(input_tag(item.digest.total)) is not None

    def pull(self, item: PlanItem, engine: Engine) -> StoredImage | None:
        """Pull the image of a plan; its tag stays until `untag_pulled`, as it has no other yet."""
        tag = input_tag(item.digest.total)
        manifest = self.client.manifest(tag)
        if manifest is None:
            return None
        reference = f"{self.name}:{tag}"
        try:
            if self.trust:
                self.trust.require_signature(f"{self.name}@{manifest.digest}")
                self._attested(self.trust, manifest, item)
        except CheckFailedError as error:
            self.say(f"{item.image.name} is built here, since it is not verified: {error}")
            return None
        try:
            engine.pull(reference)
        except CheckFailedError as error:
            self.say(f"{item.image.name} cannot be pulled from {self.name}: {error}")
            return None
        found = engine.inspect(reference)
        labels = {
            NAME: item.image.name,
            INPUT_DIGEST: item.digest.total,
            REPOSITORY: item.image.repository,
        }
        if found and manifest.is_image(found.id) and labels.items() <= found.labels.items():
            return found
        engine.untag(reference)
        self.say(f"{reference} is not {item.image.name}, as its tag says; it is built here.")
        return None

    def verdicts(self, item: PlanItem, image: StoredImage) -> tuple[Mapping[str, Any], str] | None:
        """Return what is known here of suites on an image, and the fingerprint of who signed it.

        With ``trust`` it is what the image's provenance says, else nobody's.
        """
        if not self.trust:
            known = self.artifacts.verdicts(item.digest.total, image.layers)
            return (known, "") if known else None
        manifest = self.client.manifest(input_tag(item.digest.total))
        if manifest is None or not manifest.is_image(image.id):
            return None
        try:
            signed = self._attested(self.trust, manifest, item)
        except CheckFailedError as error:
            self.say(f"{item.image.name} is tested here, since its results are not signed: {error}")
            return None
        return attested_suites(signed), self.trust.fingerprint

    def _attested(
        self, trust: Trust, manifest: Manifest, item: PlanItem
    ) -> list[Mapping[str, Any]]:
        """Return the provenances of an image that say that it is the one of a plan.

        An image that is built ``FROM`` it has the same labels, and may be signed by the same key.

        CheckFailedError: there is none that is trusted.
        """
        reference = f"{self.name}@{manifest.digest}"
        attested = trust.attested(reference, "slsaprovenance1")
        signed = [predicate for predicate in attested if _is_about(predicate, item)]
        if not signed:
            raise CheckFailedError(
                f"{reference}: its provenance does not name this image and its inputs."
            )
        return signed

    def push(self, item: PlanItem, image_id: str, engine: Engine) -> None:
        """Push an image; layers that the registry has are not sent."""
        reference = f"{self.name}:{input_tag(item.digest.total)}"
        try:
            engine.tag(image_id, reference)
            engine.push(reference)
        finally:
            engine.untag(reference)


def _is_about(predicate: Mapping[str, Any], item: PlanItem) -> bool:
    """Return whether a provenance is of the image of a plan, built from the same inputs."""
    try:
        definition = predicate["buildDefinition"]
        name = definition["externalParameters"]["image"]
        inputs = definition["internalParameters"]["inputDigest"]
    except (KeyError, TypeError):
        return False
    return bool(name == item.image.name and inputs == item.digest.total)


@dataclass(frozen=True)
class RemoteStores:
    """The stores that a build reads, in this order, and those that it writes."""

    sources: tuple[RemoteStore, ...] = ()
    targets: tuple[RemoteStore, ...] = ()

    def first(self, read: Callable[[RemoteStore], T | None]) -> tuple[str, T] | None:
        """Return the name of the first source in which ``read`` finds something, and what it found.

        A source that fails is reported once, then ignored.
        """
        for store in self.sources:
            with store.used("cannot be read"):
                if not store.failed and (found := read(store)):
                    return store.name, found
        return None


@contextmanager
def open_stores(
    settings: Settings,
    say: Callable[[str], None],
    published: Sequence[str | None] = (),
    read: Sequence[str] = (),
    written: Sequence[str] = (),
) -> Iterator[RemoteStores]:
    """Give the repositories that a build reads, the published ones first, and those it writes.

    None is the repository of the settings.

    InputError: one is not the name of a repository, or the settings name none.
    """
    with ExitStack() as stack:
        stores: dict[str, RemoteStore] = {}

        def open_all(names: Sequence[str | None], option: str) -> dict[str, RemoteStore]:
            clients = [connect(name, settings, say, option) for name in names]
            for one in clients:
                stack.callback(one.close)
                stores.setdefault(one.name, RemoteStore(one, say, trust_of(settings)))
            return {one.name: stores[one.name] for one in clients}

        sources = open_all(published, "--from") | open_all(read, "--cache-from")
        targets = open_all(written, "--cache-to")
        yield RemoteStores(tuple(sources.values()), tuple(targets.values()))


def predicted(item: PlanItem, stores: RemoteStores) -> PlanItem:
    """Return a plan item; if it is to be built, its reason says who has it. Nothing is fetched."""
    if item.action is not Action.BUILD:
        return item
    found = stores.first(lambda store: store.has_image(item))
    return replace(item, reason=f"{item.reason}; would be taken from {found[0]}") if found else item


def take_from_stores(
    items: Sequence[PlanItem], stores: RemoteStores, context: BuildContext
) -> tuple[PlanItem, ...]:
    """Return what is left to do after the remote stores gave what they have.

    That is images with their verdicts, verdicts on images that the engine has, and wheels for the
    images to be built.
    """
    if not stores.sources:
        return tuple(items)
    left = tuple(_taken(item, stores, context) for item in items)
    wheels = WheelCache(context.cache, taken=True)
    for item in left:
        if item.action is Action.BUILD:
            _take_wheel(wheel_key(item.image, context.project, context.inputs), stores, wheels)
    return left


def _take_wheel(key: str | None, stores: RemoteStores, wheels: WheelCache) -> None:
    def wheel(store: RemoteStore) -> bytes | None:
        return None if store.trust else store.artifacts.wheel(str(key))

    if key and not wheels.find(key) and (found := stores.first(wheel)):
        wheels.keep(key, found[1], taken=True)


def _taken(item: PlanItem, stores: RemoteStores, context: BuildContext) -> PlanItem:
    """Pull an image that is to be built, take the verdicts on it; return what is left to do."""
    source, image = "", None
    if item.action not in {Action.BUILD, Action.TEST}:
        return item
    if item.image_id:
        image = context.engine.inspect(item.image_id)
    elif pulled := stores.first(lambda store: store.pull(item, context.engine)):
        source, image = pulled
        trust = trust_of(context.settings)
        context.store.record_pull(image.id, source, trust.fingerprint if trust else "")
    if image is None:
        return item
    if found := stores.first(lambda store: store.verdicts(item, image)):
        place, (suites, signed_by) = found
        context.store.import_results(image.id, suites, place, signed_by=signed_by)
    left = context.planned(item.image, [image])
    if not source:
        return left
    untested = ", not tested yet" if left.action is Action.TEST else ""
    return replace(left, reason=f"taken from {source}{untested}")


def untag_pulled(items: Iterable[PlanItem], stores: RemoteStores, engine: Engine) -> None:
    """Take the input tags from images that have got others, also those of a killed build."""
    for store in (*stores.sources, *stores.targets):
        prefix = f"{store.name}:{INPUT_PREFIX}"
        with store.used("left a tag on the engine"):
            for image_id in {item.image_id for item in items if item.image_id}:
                found = engine.inspect(image_id)
                tags = found.tags if found else ()
                mine = [tag for tag in tags if tag.startswith(prefix)]
                for tag in mine if len(mine) < len(tags) else ():
                    engine.untag(tag)


def store_results(
    results: Sequence[BuildResult], stores: RemoteStores, context: BuildContext
) -> None:
    """Keep what the remote stores lack: tagged images, their verdicts, and wheels."""
    for store in stores.targets:
        kept: list[str] = []
        with store.used("cannot be written"):
            if not store.failed:
                kept.extend(_kept(results, store, stores, context))
        if kept:
            more = f" and {len(kept) - _NAMED} more" if len(kept) > _NAMED else ""
            context.say(f"Kept in {store.name}: {', '.join(kept[:_NAMED])}{more}.")


def _kept(
    results: Iterable[BuildResult], store: RemoteStore, stores: RemoteStores, context: BuildContext
) -> Iterator[str]:
    """Keep what is new, and yield the name of each image and wheel."""
    for item, image_id in [(one.item, one.image_id) for one in results if one.ok and one.image_id]:
        if not store.has_image(item):
            store.push(item, image_id, context.engine)
            yield item.image.name
        if stored := context.engine.inspect(image_id):
            suites = context.store.document(image_id)
            store.artifacts.keep_verdicts(item.digest.total, stored.layers, suites)
    wheels = WheelCache(context.cache, taken=bool(stores.sources))
    keys = (wheel_key(one.item.image, context.project, context.inputs) for one in results)
    for key in dict.fromkeys(keys):
        folder = wheels.find(key) if key else None
        wheel = next(folder.iterdir()) if folder else None
        if key and wheel and store.artifacts.keep_wheel(key, wheel.read_bytes()):
            yield wheel.name
