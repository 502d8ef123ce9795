"""``build --pull``: pull published images with the same inputs instead of building them.

A published image has the tag ``input-<input digest>``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from imgbuild.build.context import BuildContext
from imgbuild.core.errors import CheckFailedError, ImgbuildError
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME, REPOSITORY
from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.tags import INPUT_PREFIX, input_tag
from imgbuild.net.repository import Manifest
from imgbuild.net.repository_client import RegistryClient, connect
from imgbuild.net.signing import Trust, read_trust
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import SuiteResult, attested_suites, read_results

T = TypeVar("T")


@dataclass
class PullSource:
    """The repository of ``--pull``. The engine pulls, with its own logins, mirrors and TLS.

    ``trust`` is whose signature images must have. Without it no results of suites are read: anybody
    who can write to the repository could have made them.
    """

    client: RegistryClient
    log: Callable[[str], None]
    trust: Trust | None = None
    failed: bool = False

    @property
    def name(self) -> str:
        return self.client.name

    def read(self, fetch: Callable[[], T | None]) -> T | None:
        """Return what ``fetch`` gives; None after the first error, which is reported.

        A build continues without a repository that fails.
        """
        if self.failed:
            return None
        try:
            return fetch()
        except (ImgbuildError, OSError) as error:
            self.failed = True
            self.log(f"The repository {self.name} cannot be read; continuing without it. {error}")
            return None

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
                self._read_provenances(self.trust, manifest, item)
        except CheckFailedError as error:
            self.log(f"{item.image.name} is built here, since it is not verified: {error}")
            return None
        try:
            engine.pull(reference)
        except CheckFailedError as error:
            self.log(f"{item.image.name} cannot be pulled from {self.name}: {error}")
            return None
        image = engine.inspect(reference)
        labels = {
            NAME: item.image.name,
            INPUT_DIGEST: item.digest.total,
            REPOSITORY: item.image.repository,
        }
        if image and manifest.is_image(image.id) and labels.items() <= image.labels.items():
            return image
        engine.untag(reference)
        self.log(f"{reference} is not {item.image.name}, as its tag says; it is built here.")
        return None

    def signed_results(
        self, item: PlanItem, image: StoredImage
    ) -> Mapping[str, SuiteResult] | None:
        """Return the results of suites in the signed provenance of an image of the engine.

        None if nobody is trusted, or the image is not the published one.
        """
        manifest = self.client.manifest(input_tag(item.digest.total)) if self.trust else None
        if self.trust is None or manifest is None or not manifest.is_image(image.id):
            return None
        try:
            return read_results(attested_suites(self._read_provenances(self.trust, manifest, item)))
        except CheckFailedError as error:
            self.log(f"{item.image.name} is tested here, since its results are not signed: {error}")
            return None

    def _read_provenances(
        self, trust: Trust, manifest: Manifest, item: PlanItem
    ) -> list[Mapping[str, Any]]:
        """Return the provenances of an image that say that it is the one of a plan.

        An image that is built ``FROM`` it has the same labels, and may be signed by the same key.

        CheckFailedError: there is none that is trusted.
        """
        reference = f"{self.name}@{manifest.digest}"
        attested = trust.read_attestations(reference, "slsaprovenance1")
        signed = [predicate for predicate in attested if _is_about(predicate, item)]
        if not signed:
            raise CheckFailedError(
                f"{reference}: its provenance does not name this image and its inputs."
            )
        return signed


def _is_about(predicate: Mapping[str, Any], item: PlanItem) -> bool:
    """Return whether a provenance is of the image of a plan, built from the same inputs."""
    try:
        definition = predicate["buildDefinition"]
        name = definition["externalParameters"]["image"]
        inputs = definition["internalParameters"]["inputDigest"]
    except (KeyError, TypeError):
        return False
    return bool(name == item.image.name and inputs == item.digest.total)


@contextmanager
def open_source(
    name: str | None, settings: Settings, log: Callable[[str], None]
) -> Iterator[PullSource]:
    """Give the repository to pull from; without a name, that of the settings.

    InputError: it is not the name of a repository, or the settings name none.
    """
    with closing(connect(name, settings, log, "--from")) as client:
        yield PullSource(client, log, read_trust(settings))


def predict_pull(item: PlanItem, source: PullSource) -> PlanItem:
    """Return a plan item; if it is to be built, its reason says who has it. Nothing is fetched."""
    if item.action is Action.BUILD and source.read(lambda: source.has_image(item)):
        return replace(item, reason=f"{item.reason}; would be pulled from {source.name}")
    return item


def pull_images(
    items: Sequence[PlanItem], source: PullSource | None, context: BuildContext
) -> tuple[PlanItem, ...]:
    """Pull what the repository has of the images to build; return what is left to do.

    Their signed results are used, also for images that the engine has already.
    """
    if source is None:
        return tuple(items)
    return tuple(_pull(item, source, context) for item in items)


def _pull(item: PlanItem, source: PullSource, context: BuildContext) -> PlanItem:
    if item.action not in {Action.BUILD, Action.TEST}:
        return item
    fingerprint = source.trust.fingerprint if source.trust else ""
    if item.image_id:
        image = context.engine.inspect(item.image_id)
    elif image := source.read(lambda: source.pull(item, context.engine)):
        context.store.record_pull(image.id, source.name, fingerprint)
    if image is None:
        return item
    results = source.read(partial(source.signed_results, item, image))
    if results is not None:
        context.store.import_results(image.id, results, source.name, signed_by=fingerprint)
    left = context.planned(item.image, [image])
    if item.image_id:
        return left
    untested = ", not tested yet" if left.action is Action.TEST else ""
    return replace(left, reason=f"pulled from {source.name}{untested}")


def untag_pulled(items: Iterable[PlanItem], source: PullSource | None, engine: Engine) -> None:
    """Take the input tags from images that have got others, also those of a killed build."""
    if source is None:
        return
    prefix = f"{source.name}:{INPUT_PREFIX}"
    try:
        for image_id in {item.image_id for item in items if item.image_id}:
            image = engine.inspect(image_id)
            tags = image.tags if image else ()
            mine = [tag for tag in tags if tag.startswith(prefix)]
            for tag in mine if len(mine) < len(tags) else ():
                engine.untag(tag)
    except (ImgbuildError, OSError) as error:
        source.log(f"A tag {prefix}… is left on the engine. {error}")
