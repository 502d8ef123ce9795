"""Verify a published image: signature, attestations, tag, record, configuration and contents.

Only signed documents prove anything about the image; see :mod:`imgbuild.publish.signed_image`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from imgbuild.build.context import Log
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.core.outcome import Outcome
from imgbuild.core.parallel import in_parallel
from imgbuild.core.project import Project
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME
from imgbuild.engine.client import Engine, open_engine
from imgbuild.engine.types import StoredImage
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.tags import INDEX_SUFFIX, RECORD_SUFFIX, RELEASE, index_tag, record_tag
from imgbuild.net.repository import DamagedError, Manifest, split_reference
from imgbuild.net.repository_client import REQUESTS, RegistryClient, connect
from imgbuild.net.signing import RETIREMENT, Trust
from imgbuild.publish.provenance import read_configuration
from imgbuild.publish.record import Record, read_record, release_order
from imgbuild.publish.release_index import is_index, member_tag, read_index
from imgbuild.publish.sbom import make_locked_sbom
from imgbuild.publish.signed_image import (
    Retirement,
    SignedImage,
    read_provenances,
    read_retirement,
    record_differences,
)

#: The keys in a manifest that an engine pushes.
IMAGE_KEYS = {"schemaVersion", "mediaType", "config", "layers"}
T = TypeVar("T")
Predicates = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class VerifiedFact:
    """The result of one check; ``problem`` is empty if it passed.

    If there is nothing to compare, ``text`` quotes the signed provenance.
    """

    name: str
    problem: str = ""
    text: str = ""


def verify_image(
    reference: str, trust: Trust, project: Project, log: Log
) -> tuple[str, list[VerifiedFact]]:
    """Verify a published image; return its reference by digest, and the facts in order.

    The digest is looked up only once for all checks.

    InputError: the reference is invalid, or the registry does not have the image.
    """
    matrix = load_matrix(project.matrix)
    repository, tag, digest = split_reference(reference)
    with closing(connect(repository, project.settings, log, "verify")) as registry:
        wanted = digest or tag or "latest"
        manifest = registry.manifest(wanted)
        if manifest is None:
            raise InputError(f"{registry.name} has no image {wanted}.")
        tag = tag or ("" if digest else wanted)
        image = PublishedImage(registry, manifest, tag, trust, matrix, log)
        if is_index(manifest):
            return image.reference, _verify_index(image, project)
        return image.reference, _verify_facts(image, project)


def _verify_index(index: "PublishedImage", project: Project) -> list[VerifiedFact]:
    """Verify an index and each of its images; each fact about an image begins with its platform.

    Only the contents of the image for the engine's platform are read.
    """
    try:
        index.trust.require_signature(index.reference)
        digests = read_index(index.manifest)
    except CheckFailedError as error:
        return [VerifiedFact("index", str(error))]
    with open_engine(project.settings.engine) as engine:
        own_platform = engine.version().platform
    images: list[PublishedImage] = []
    facts: list[VerifiedFact] = []
    for platform, digest in digests.items():
        manifest = index.registry.manifest(digest)
        if manifest is None:
            text = f"the registry does not have its image for {platform}, {digest}"
            return [VerifiedFact("index", text)]
        tag = member_tag(index.tag, platform)
        image = replace(index, manifest=manifest, tag=tag, index=index.manifest.digest)
        images.append(image)
        image_facts = _verify_facts(image, project, own_platform == platform)
        facts += [replace(fact, name=f"{platform}: {fact.name}") for fact in image_facts]
    problem = ""
    try:
        releases = list(map(_releases, images, digests))
        if not set.intersection(*releases):
            problem = "its images are not the images of one release for these platforms"
    except CheckFailedError as error:
        problem = str(error)
    return [VerifiedFact("index", problem), *facts]


def _verify_facts(
    image: "PublishedImage", project: Project, with_contents: bool = True
) -> list[VerifiedFact]:
    facts: list[VerifiedFact] = []

    def attempt(name: str, work: Callable[..., T], *arguments: object) -> T | None:
        try:
            result = work(*arguments)
        except CheckFailedError as error:
            facts.append(VerifiedFact(name, str(error)))
            return None
        facts.append(VerifiedFact(name))
        return result

    attempt("signature", image.trust.require_signature, image.reference)
    sboms = attempt("SBOM", image.trust.read_attestations, image.reference, "cyclonedx")
    provenances = attempt("provenance", lambda: image.provenances) or (None,)
    signed = attempt("tag", image.require_tag, provenances, image.tag) or provenances[-1]
    record = attempt("record", image.require_record, signed)
    configuration = attempt("configuration", image.require_configuration, signed)
    attempt("retirement", image.require_in_use, record)
    if not with_contents:
        image.log(
            f"note: the contents of {image.reference} were not compared with its SBOM: this "
            "engine runs images for another platform."
        )
    elif signed and configuration:
        attempt("contents", _require_contents, image, configuration, sboms or (), project)
    if signed and signed.base:
        facts += extension_facts(signed)
    if signed and record and image.tag:
        image.note_newer_release(signed, record)
    return facts


def _require_contents(
    image: "PublishedImage", configuration: Mapping[str, Any], sboms: Predicates, project: Project
) -> None:
    """Compare the running image with its signed SBOM and configuration.

    If the image is pulled for this, it is removed afterwards.
    """
    reference = image.reference
    with open_engine(project.settings.engine) as engine:
        present = engine.inspect(reference)
        if present is None:
            image.log(f"pulling {reference}")
            platform = f"{configuration.get('os')}/{configuration.get('architecture')}"
            engine.pull(reference, platform=platform)
        stored = present or engine.need(reference)
        try:
            _compare_configuration(stored, engine, configuration)
            sbom = make_locked_sbom(reference, stored, engine, project, image.matrix)
            _compare_sbom(json.loads(sbom), sboms)
        finally:
            if present is None:
                engine.discard(stored.id)


@dataclass(frozen=True)
class PublishedImage:
    """An image in a registry, by digest; ``tag`` is the tag in the user's reference, or empty.

    If the reference names an index, ``index`` is its digest.
    """

    registry: RegistryClient
    manifest: Manifest
    tag: str
    trust: Trust
    matrix: Matrix
    log: Log
    index: str = ""

    @property
    def reference(self) -> str:
        return f"{self.registry.name}@{self.manifest.digest}"

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """All tags in the repository."""
        return self.registry.tags()

    @cached_property
    def provenances(self) -> tuple[SignedImage, ...]:
        """Its publications; CheckFailedError: nobody that is trusted attested one."""
        predicates = self.trust.read_attestations(self.reference, "slsaprovenance1")
        return read_provenances(predicates)

    def require_tag(self, provenances: Sequence[SignedImage | None], tag: str) -> SignedImage:
        """Return the latest provenance that allows the tag; without a tag, the latest provenance.

        CheckFailedError: no provenance allows the tag, or there is no provenance.
        """
        for signed in reversed(provenances):
            if signed and (not tag or signed.may_have(tag, self.matrix)):
                return signed
        signed = provenances[-1]
        if signed is None:
            raise CheckFailedError("there is no trusted provenance that lists its tags")
        planned = signed.tags(self.matrix)
        known = (planned.immutable, *planned.moving)
        raise CheckFailedError(
            f"the tag {tag} is not a signed tag of this image; somebody moved it. Signed tags of "
            f"{signed.image}: {', '.join(known)}"
        )

    def require_record(self, signed: SignedImage | None) -> Record:
        """Return the record of the release that a signed provenance describes.

        CheckFailedError: there is no record, or it differs from the provenance.
        """
        if signed is None:
            raise CheckFailedError("there is no trusted provenance to compare a record with")
        record = self._find_record(signed)
        if record is None:
            raise CheckFailedError(
                "this image has no record: it was deleted, or the push was interrupted"
            )
        if record.digest != self.manifest.digest:
            raise CheckFailedError(
                f"the record of {record.tag} belongs to another image, {record.digest}"
            )
        digest = self.registry.head(record.tag)
        if digest != record.digest:
            raise CheckFailedError(
                f"its immutable tag {record.tag} was moved: it now points to {digest or 'nothing'}"
            )
        different = [*record_differences(record, signed, self.matrix)]
        if different:
            raise CheckFailedError(
                f"its record differs from its signed provenance: {', '.join(different)}"
            )
        if signed.release is None:
            self.log(
                f"note: its release {record.release} is not signed, because the imgbuild that "
                "published it did not sign releases, tags and configurations yet."
            )
        for suite, result in record.report.items():
            verdict = signed.verdicts.get(suite)
            if result.verdict != verdict:
                self.log(
                    f"note: its record says that the suite {suite} {result.verdict}, but its "
                    f"signed provenance says that it {verdict or 'was not run'}."
                )
        return record

    def _find_record(self, signed: SignedImage) -> Record | None:
        """Return the record of the signed tag; without one, the latest record of this digest."""
        if signed.tag:
            return read_record(self.registry, signed.tag)
        tags = [
            tag
            for tag in self.tags
            if signed.is_immutable(tag, self.matrix) and record_tag(tag) in self.tags
        ]
        if self.tag in tags:
            tags = [self.tag]
        records = in_parallel(lambda tag: read_record(self.registry, tag), tags, REQUESTS)
        own = [record for record in records if record and record.digest == self.manifest.digest]
        return max(own, key=lambda record: record.age, default=None)

    def require_configuration(self, signed: SignedImage | None) -> Mapping[str, Any]:
        """Return the image's configuration.

        CheckFailedError: it differs from the signed configuration, or cannot be read.
        """
        configuration = read_configuration(self.registry, self.manifest)
        if foreign := sorted(self.manifest.document().keys() - IMAGE_KEYS):
            raise CheckFailedError(
                f"its manifest has {', '.join(foreign)}, which images of imgbuild do not have"
            )
        if signed is None:
            raise CheckFailedError("there is no trusted provenance to compare it with")
        if signed.configuration is None:
            labels = configuration["config"].get("Labels") or {}
            expected = {NAME: signed.image, INPUT_DIGEST: signed.input_digest}
            wrong = [name for name, value in expected.items() if labels.get(name) != value]
            if wrong:
                raise CheckFailedError(
                    f"its provenance has other values for the labels {', '.join(wrong)}"
                )
            self.log(
                "note: its provenance has no configuration. Labels and layers are compared with "
                "the SBOM. Env, Entrypoint, Cmd, User and other settings are not signed."
            )
            return configuration
        different = _differing_keys(configuration, signed.configuration)
        if different:
            raise CheckFailedError(
                f"it differs from the one in its signed provenance: {', '.join(different)}"
            )
        return configuration

    def require_in_use(self, record: Record | None) -> None:
        """Raise CheckFailedError if the image is retired, or the registry cannot be reached."""
        retirement = self.require_same_retirement(record)
        if retirement:
            raise CheckFailedError(str(retirement))

    def require_same_retirement(self, record: Record | None) -> Retirement | None:
        """Return the signed retirement of the image, if any.

        CheckFailedError: the record differs from it, or the registry cannot be reached.
        """
        signed = read_retirements(self.registry, self.trust, self.manifest.digest)
        recorded = None
        if record and record.retired:
            recorded = Retirement(record.retired, record.retired_reason)
        if recorded in signed:
            return recorded
        if signed and record:
            said = f"says: {recorded}" if recorded else "does not say that it is retired"
            raise CheckFailedError(f"{signed[-1]}; its record {said}")
        if recorded:
            raise CheckFailedError(
                f"{recorded}, but only according to its record, which is not signed. If the "
                "retirement is right, sign it: `imgbuild release retire TAG --reason TEXT "
                "--sign-key KEY`"
            )
        return signed[-1] if signed else None

    def note_newer_release(self, signed: SignedImage, record: Record) -> None:
        """Log a note if the moving tag does not point to the newest release of its image.

        Releases are compared by the day and number in their immutable tags. A later release counts
        only if its signed provenance names the same image.
        """
        if self.tag not in signed.tags(self.matrix).moving:
            return
        if self.registry.head(self.tag) != (self.index or self.manifest.digest):
            return  # the user's reference has a tag and a digest (TAG@DIGEST), which differ
        # The record of an image that is in several releases is the record of the latest one.
        releases = [*self._later_tags(record), *([record.tag] if self.index else [])]
        for tag in releases:
            digest = self.registry.head(tag)
            index = self.registry.head(index_tag(tag)) if self.index else None
            if digest == self.manifest.digest and index in {None, self.index}:
                return  # the same image was published again
            if digest and self._is_release_of(tag, digest, signed.image):
                why = "the tag was moved back, or the newer push was interrupted"
                text = f"{self.tag} is at release {record.release}, but {tag} is newer"
                if self.index:
                    text = f"{self.tag} is at the images of an older release than {tag}"
                    why += ", or the newer release lacks the image for another platform"
                self.log(f"note: {text}: {why}.")
                return

    def _later_tags(self, record: Record) -> list[str]:
        """Return the immutable tags of possible later releases of this image, newest first."""
        stem = RELEASE.sub("", record.tag)
        later: dict[str, tuple[int, ...]] = {}
        for tag in self.tags:
            is_other = tag.endswith((RECORD_SUFFIX, INDEX_SUFFIX))
            release = None if is_other else RELEASE.search(tag)
            if release and release_order(release[0]) > release_order(record.release):
                later[tag] = release_order(release[0])

        def is_candidate(tag: str) -> bool:
            if RELEASE.sub("", tag) == stem:
                return True
            try:
                other = read_record(self.registry, tag)
            except DamagedError:
                return False
            return other is not None and other.image == record.image

        candidates = in_parallel(is_candidate, [*later], REQUESTS)
        pairs = zip(later, candidates, strict=True)
        tags = [tag for tag, is_release in pairs if is_release]
        return sorted(tags, key=later.__getitem__, reverse=True)

    def _is_release_of(self, tag: str, digest: str, image: str) -> bool:
        """Return whether a trusted provenance of the digest names this image and the tag."""
        try:
            predicates = self.trust.read_attestations(
                f"{self.registry.name}@{digest}", "slsaprovenance1"
            )
            provenances = read_provenances(predicates)
        except CheckFailedError:
            return False  # anyone with write access can push an unsigned image
        for other in provenances:
            if other.image == image and other.is_immutable(tag, self.matrix):
                return True
        return False


def _releases(image: PublishedImage, platform: str) -> set[str | None]:
    """Return the releases in which an image for a platform has its tag."""
    return {
        signed.release
        for signed in image.provenances
        if signed.platform == platform
        and (not image.tag or signed.may_have(image.tag, image.matrix))
    }


def extension_facts(signed: SignedImage) -> list[VerifiedFact]:
    """Return the base, lock and suites from the provenance of an image from `imgbuild extend`."""
    passed = [suite for suite, verdict in signed.verdicts.items() if verdict == Outcome.PASSED]
    suites: list[str] = []
    if passed:
        suites.append(f"{', '.join(sorted(passed))} passed")
    suites += [f"{suite} {word}" for suite, word in signed.verdicts.items() if suite not in passed]
    if signed.not_run:
        suites.append(f"not run: {', '.join(signed.not_run)}")
    lock = signed.lock or "no package was added"
    text = "; ".join(suites) or "no suites ran, because the base is not an image from matrix.yaml"
    return [
        VerifiedFact("base", text=signed.base),
        VerifiedFact("lock", text=lock),
        VerifiedFact("suites", text=text),
    ]


def read_retirements(registry: RegistryClient, trust: Trust, digest: str) -> list[Retirement]:
    """Return an image's retirements that have a trusted signature, oldest first.

    CheckFailedError: the registry cannot be reached, or has a retirement that is not trusted.
    """
    predicates = trust.read_attestations_if_any(f"{registry.name}@{digest}", RETIREMENT)
    if not predicates and _lists_retirement(registry, digest):
        raise CheckFailedError(
            "cosign cannot verify a retirement that is attached to the image: somebody else signed "
            "the retirement, or the registry did not return it"
        )
    return sorted(map(read_retirement, predicates), key=lambda retirement: retirement.retired)


def _lists_retirement(registry: RegistryClient, digest: str) -> bool:
    """Return whether an image's attestations list a retirement from any signer.

    If cosign can read one attestation, it ignores the others that the registry does not return. So
    its answer alone does not prove that there is no retirement.
    """
    manifest = registry.manifest(f"{digest.replace(':', '-')}.att")
    layers = manifest.document().get("layers", ()) if manifest else ()
    for layer in layers:
        annotations = layer.get("annotations") if isinstance(layer, Mapping) else None
        if isinstance(annotations, Mapping) and annotations.get("predicateType") == RETIREMENT:
            return True
    return False


def _differing_keys(present: Mapping[str, Any], signed: Mapping[str, Any]) -> list[str]:
    """Return the keys with different values; keys below ``config`` are listed separately."""
    names = sorted({*present, *signed} - {"config"})
    keys = [name for name in names if present.get(name) != signed.get(name)]
    own, other = present.get("config"), signed.get("config")
    if not isinstance(own, Mapping) or not isinstance(other, Mapping):
        return [*keys, "config"]
    names = sorted({*own, *other})
    inner = [f"config.{name}" for name in names if own.get(name) != other.get(name)]
    return [*inner, *keys]


def _compare_configuration(
    stored: StoredImage, engine: Engine, configuration: Mapping[str, Any]
) -> None:
    """Raise CheckFailedError if the engine's layers or configuration differ from the registry's."""
    if [*stored.layers] != configuration["rootfs"]["diff_ids"]:
        raise CheckFailedError("the layers in the engine differ from the layers in the registry")
    own, expected = engine.configuration(stored.id), configuration["config"]
    different: set[str] = set()
    for name in {*own, *expected}:
        # Engines omit empty values, or write them differently.
        value, expected_value = own.get(name) or None, expected.get(name) or None
        if value != expected_value:
            different.add(name)
    if different:
        raise CheckFailedError(
            f"{', '.join(sorted(different))} in the engine differs from the registry's "
            "configuration"
        )


def _compare_sbom(now: Mapping[str, Any], attested: Predicates) -> None:
    """Raise CheckFailedError unless an attested SBOM matches the image's contents."""
    if not attested:
        raise CheckFailedError("there is no SBOM to compare it with")
    own, others = _sbom_facts(now), [_sbom_facts(document) for document in attested]
    if own not in others:
        lacks, more = sorted(others[-1] - own), sorted(own - others[-1])
        raise CheckFailedError(
            f"the SBOM and the image differ: only in the SBOM {lacks[:3]}, only in the image "
            f"{more[:3]}"
        )


def _sbom_facts(document: Mapping[str, Any]) -> set[str]:
    """Return the facts of an SBOM that do not depend on the machine; origins do."""
    try:
        properties = document["metadata"]["component"]["properties"]
        facts = {f"{fact['name']}={fact['value']}" for fact in properties}
        return facts | {str(component["purl"]) for component in document["components"]}
    except (KeyError, TypeError):
        return set()
