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
    """The repository of ``--pull``. The engine pulls with its own logins, mirrors and TLS settings.

    If ``trust`` is set, images must have a trusted signature. Without it, results of suites are not
    read, because anybody with write access to the repository could have made them.
    """

    client: RegistryClient
    log: Callable[[str], None]
    trust: Trust | None = None
    failed: bool = False

    @property
    def name(self) -> str:
        return self.client.name

    def read(self, fetch: Callable[[], T | None]) -> T | None:
        """Call ``fetch`` and return its result.

        Log the first error and return None from then on: a build continues without the repository.
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
        """Return whether the repository has an image with this input digest, without pulling it."""
        return self.client.head(input_tag(item.digest.total)) is not None

    def pull(self, item: PlanItem, engine: Engine) -> StoredImage | None:
        """Pull the image of a plan item.

        The image keeps its input tag until `untag_pulled`, because it has no other tag yet.
        """
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
            self.log(f"Building {item.image.name}, because its signature is not verified: {error}")
            return None
        try:
            engine.pull(reference, platform=item.image.platform)
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
        self.log(f"Building {item.image.name}, because {reference} is another image.")
        return None

    def signed_results(
        self, item: PlanItem, image: StoredImage
    ) -> Mapping[str, SuiteResult] | None:
        """Return the suite results in the signed provenance of an image in the engine.

        None without trusted signers, or if the image is not the published one.
        """
        manifest = self.client.manifest(input_tag(item.digest.total)) if self.trust else None
        if self.trust is None or manifest is None or not manifest.is_image(image.id):
            return None
        try:
            return read_results(attested_suites(self._read_provenances(self.trust, manifest, item)))
        except CheckFailedError as error:
            self.log(f"Testing {item.image.name}, because its results are not signed: {error}")
            return None

    def _read_provenances(
        self, trust: Trust, manifest: Manifest, item: PlanItem
    ) -> list[Mapping[str, Any]]:
        """Return the trusted provenances that name the image and inputs of a plan item.

        Labels and signature are not enough: an image built ``FROM`` this one inherits the labels,
        and may be signed with the same key.

        CheckFailedError: there is no such provenance.
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
    """Return whether a provenance names the image and the input digest of a plan item."""
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
    """Open the repository to pull from; the default is the one in the settings.

    InputError: the name is not a repository, or there is no name and the settings have none.
    """
    with closing(connect(name, settings, log, "--from")) as client:
        yield PullSource(client, log, read_trust(settings))


def predict_pull(item: PlanItem, source: PullSource) -> PlanItem:
    """Add to a plan item's reason if it would be pulled instead of built; fetch nothing."""
    if item.action is Action.BUILD and source.read(lambda: source.has_image(item)):
        return replace(item, reason=f"{item.reason}; would be pulled from {source.name}")
    return item


def pull_images(
    items: Sequence[PlanItem], source: PullSource | None, context: BuildContext
) -> tuple[PlanItem, ...]:
    """Pull the images that need a build from the repository; return the remaining work.

    Use their signed suite results, also for images that the engine already has.
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
    """Remove the input tags of images that have other tags, also those of an interrupted build."""
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
        source.log(f"A tag {prefix}… could not be removed from the engine. {error}")
