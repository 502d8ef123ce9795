"""Verify a published image: signature, attestations, tag, record, configuration and contents.

Everything that an image is compared with is signed; see :mod:`imgbuild.publish.signed_image`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
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
from imgbuild.matrix.tags import RECORD_SUFFIX, RELEASE, record_tag
from imgbuild.net.repository import DamagedError, Manifest, split_reference
from imgbuild.net.repository_client import REQUESTS, RegistryClient, connect
from imgbuild.net.signing import RETIREMENT, Trust
from imgbuild.publish.provenance import read_configuration
from imgbuild.publish.record import Record, read_record, release_order
from imgbuild.publish.sbom import make_locked_sbom
from imgbuild.publish.signed_image import (
    Retirement,
    SignedImage,
    read_provenances,
    read_retirement,
    record_differences,
)

#: The keys of the manifest of an image that an engine pushes.
IMAGE_KEYS = {"schemaVersion", "mediaType", "config", "layers"}
T = TypeVar("T")
Predicates = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class VerifiedFact:
    """One thing that was verified; ``problem`` is empty where it holds.

    ``text`` is what the signed provenance says, if the fact is just that.
    """

    name: str
    problem: str = ""
    text: str = ""


def verify_image(
    reference: str, trust: Trust, project: Project, log: Log
) -> tuple[str, list[VerifiedFact]]:
    """Return a published image by its digest, and what was verified of it, in this order.

    The digest is looked up once for all checks.

    InputError: the reference is none, or the registry has nothing there.
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
        return image.reference, _verify_facts(image, project)


def _verify_facts(image: "PublishedImage", project: Project) -> list[VerifiedFact]:
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
    provenances = attempt("provenance", image.read_provenances) or (None,)
    signed = attempt("tag", image.require_tag, provenances, image.tag) or provenances[-1]
    record = attempt("record", image.require_record, signed)
    configuration = attempt("configuration", image.require_configuration, signed)
    attempt("retirement", image.require_in_use, record)
    if signed and configuration:
        attempt("contents", _require_contents, image, configuration, sboms or (), project)
    if signed and signed.base:
        facts += extension_facts(signed)
    if signed and record and image.tag:
        image.note_newer_release(signed, record)
    return facts


def _require_contents(
    image: "PublishedImage", configuration: Mapping[str, Any], sboms: Predicates, project: Project
) -> None:
    """Compare the running image with what is signed; an image pulled for it is removed."""
    reference = image.reference
    with open_engine(project.settings.engine) as engine:
        present = engine.inspect(reference)
        if present is None:
            image.log(f"pulling {reference}")
            engine.pull(reference)
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
    """An image of a registry by its digest; ``tag`` is the one that was asked for, if any."""

    registry: RegistryClient
    manifest: Manifest
    tag: str
    trust: Trust
    matrix: Matrix
    log: Log

    @property
    def reference(self) -> str:
        return f"{self.registry.name}@{self.manifest.digest}"

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """All tags of the repository."""
        return self.registry.tags()

    def read_provenances(self) -> tuple[SignedImage, ...]:
        predicates = self.trust.read_attestations(self.reference, "slsaprovenance1")
        return read_provenances(predicates)

    def require_tag(self, provenances: Sequence[SignedImage | None], tag: str) -> SignedImage:
        """Return the latest publication that may have a tag, or the latest for no tag.

        CheckFailedError: none may, or there is none.
        """
        for signed in reversed(provenances):
            if signed and (not tag or signed.may_have(tag, self.matrix)):
                return signed
        signed = provenances[-1]
        if signed is None:
            raise CheckFailedError("there is no trusted provenance that says which tags it has")
        planned = signed.tags(self.matrix)
        known = (planned.immutable, *planned.moving)
        raise CheckFailedError(
            f"the tag {tag} is not a signed tag of this image; somebody moved it here. The signed "
            f"tags of {signed.image}: {', '.join(known)}"
        )

    def require_record(self, signed: SignedImage | None) -> Record:
        """Return the record of a publication, which must say the same.

        CheckFailedError: there is none, or it differs.
        """
        if signed is None:
            raise CheckFailedError("there is no trusted provenance to compare a record with")
        record = self._find_record(signed)
        if record is None:
            raise CheckFailedError(
                "this image has no record: it was deleted, or its push was cut off"
            )
        if record.digest != self.manifest.digest:
            raise CheckFailedError(f"the record of {record.tag} is about {record.digest}")
        digest = self.registry.head(record.tag)
        if digest != record.digest:
            raise CheckFailedError(
                f"its immutable tag {record.tag} is at {digest or 'nothing'}: it was moved"
            )
        different = [*record_differences(record, signed, self.matrix)]
        if different:
            raise CheckFailedError(
                f"its record differs from its signed provenance: {', '.join(different)}"
            )
        if signed.release is None:
            self.log(
                f"note: its release {record.release} is not signed: it was published before "
                "imgbuild signed releases, tags and configurations."
            )
        for suite, result in record.report.items():
            verdict = signed.verdicts.get(suite)
            if result.verdict != verdict:
                self.log(
                    f"note: its record says that the suite {suite} {result.verdict}, its "
                    f"signed provenance that it {verdict or 'was not run'}."
                )
        return record

    def _find_record(self, signed: SignedImage) -> Record | None:
        """Return the record under the signed tag, else the latest one about this digest."""
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
        """Return the image's configuration, which must be the signed one.

        CheckFailedError: it differs, or cannot be read.
        """
        configuration = read_configuration(self.registry, self.manifest)
        if foreign := sorted(self.manifest.document().keys() - IMAGE_KEYS):
            raise CheckFailedError(
                f"its manifest has {', '.join(foreign)}, which no image of imgbuild has"
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
                "note: its provenance has no configuration: labels and layers are compared with "
                "its SBOM; Env, Entrypoint, Cmd, User and the rest are not signed apart."
            )
            return configuration
        different = _differing_keys(configuration, signed.configuration)
        if different:
            raise CheckFailedError(
                f"it differs from the one in its signed provenance: {', '.join(different)}"
            )
        return configuration

    def require_in_use(self, record: Record | None) -> None:
        """Return if nothing says that the image is retired.

        CheckFailedError: it is retired, or the registry could not be asked.
        """
        retirement = self.require_same_retirement(record)
        if retirement:
            raise CheckFailedError(str(retirement))

    def require_same_retirement(self, record: Record | None) -> Retirement | None:
        """Return the signed retirement of the image, if any; its record must say the same.

        CheckFailedError: it differs, or the registry could not be asked.
        """
        signed = read_retirements(self.registry, self.trust, self.manifest.digest)
        recorded = None
        if record and record.retired:
            recorded = Retirement(record.retired, record.retired_reason)
        if recorded in signed:
            return recorded
        if signed and record:
            said = f"says: {recorded}" if recorded else "does not say so"
            raise CheckFailedError(f"{signed[-1]}; its record {said}")
        if recorded:
            raise CheckFailedError(
                f"{recorded}; only its record says so, no trusted signature does. If that is "
                "right, sign it: imgbuild retire --sign-key KEY"
            )
        return signed[-1] if signed else None

    def note_newer_release(self, signed: SignedImage, record: Record) -> None:
        """Say that a moving tag is not at the newest release of its image, if so.

        Releases are compared by the day and the number in their immutable tags. A later release
        counts if its signed provenance says that it is of the same image.
        """
        if self.tag not in signed.tags(self.matrix).moving:
            return
        if self.registry.head(self.tag) != self.manifest.digest:
            return  # the digest was named beside the tag
        for tag in self._later_tags(record):
            digest = self.registry.head(tag)
            if digest == self.manifest.digest:
                return  # the same image was published again
            if digest and self._is_release_of(tag, digest, signed.image):
                self.log(
                    f"note: {self.tag} is at release {record.release}, and {tag} is newer: the tag "
                    "was moved back, or the newer push was cut off."
                )
                return

    def _later_tags(self, record: Record) -> list[str]:
        """Return the immutable tags of later releases that may be of this image, newest first."""
        stem = RELEASE.sub("", record.tag)
        later: dict[str, tuple[int, ...]] = {}
        for tag in self.tags:
            release = None if tag.endswith(RECORD_SUFFIX) else RELEASE.search(tag)
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
        """Return whether a trusted provenance of a digest says that the tag is this image's."""
        try:
            predicates = self.trust.read_attestations(
                f"{self.registry.name}@{digest}", "slsaprovenance1"
            )
            provenances = read_provenances(predicates)
        except CheckFailedError:
            return False  # whoever may write can put an unsigned image there
        for other in provenances:
            if other.image == image and other.is_immutable(tag, self.matrix):
                return True
        return False


def extension_facts(signed: SignedImage) -> list[VerifiedFact]:
    """Return what the provenance of an image of `imgbuild extend` says of how it was made."""
    passed = [suite for suite, verdict in signed.verdicts.items() if verdict == Outcome.PASSED]
    suites: list[str] = []
    if passed:
        suites.append(f"{', '.join(sorted(passed))} passed")
    suites += [f"{suite} {word}" for suite, word in signed.verdicts.items() if suite not in passed]
    if signed.not_run:
        suites.append(f"not run: {', '.join(signed.not_run)}")
    lock = signed.lock or "no package was added"
    text = "; ".join(suites) or "none ran: the base is not an image of a family"
    return [
        VerifiedFact("base", text=signed.base),
        VerifiedFact("lock", text=lock),
        VerifiedFact("suites", text=text),
    ]


def read_retirements(registry: RegistryClient, trust: Trust, digest: str) -> list[Retirement]:
    """Return the retirements of an image that somebody trusted has signed, in order of their days.

    CheckFailedError: the registry could not be asked, or has a retirement that is not trusted.
    """
    predicates = trust.read_attestations_if_any(f"{registry.name}@{digest}", RETIREMENT)
    if not predicates and _lists_retirement(registry, digest):
        raise CheckFailedError(
            "a retirement is attached to it that cosign does not verify: somebody else signed it, "
            "or the registry did not return it"
        )
    return sorted(map(read_retirement, predicates), key=lambda retirement: retirement.retired)


def _lists_retirement(registry: RegistryClient, digest: str) -> bool:
    """Return whether a retirement is among an image's attestations, whoever put it there.

    If cosign reads one attestation, it ignores those that the registry does not give.
    """
    manifest = registry.manifest(f"{digest.replace(':', '-')}.att")
    layers = manifest.document().get("layers", ()) if manifest else ()
    for layer in layers:
        annotations = layer.get("annotations") if isinstance(layer, Mapping) else None
        if isinstance(annotations, Mapping) and annotations.get("predicateType") == RETIREMENT:
            return True
    return False


def _differing_keys(present: Mapping[str, Any], signed: Mapping[str, Any]) -> list[str]:
    """Return the keys with other values, those below ``config`` by themselves."""
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
    """Return if the engine reads the layers and the configuration as they are in the registry."""
    if [*stored.layers] != configuration["rootfs"]["diff_ids"]:
        raise CheckFailedError("the engine has other layers than the registry under this digest")
    own, expected = engine.configuration(stored.id), configuration["config"]
    different: set[str] = set()
    for name in {*own, *expected}:
        # Engines leave out empty values, or write them in another way.
        value, expected_value = own.get(name) or None, expected.get(name) or None
        if value != expected_value:
            different.add(name)
    if different:
        raise CheckFailedError(
            f"the engine has another {', '.join(sorted(different))} than the registry under this "
            "digest"
        )


def _compare_sbom(now: Mapping[str, Any], attested: Predicates) -> None:
    """Return if an attested SBOM has the layers, labels and packages that the image has."""
    if not attested:
        raise CheckFailedError("there is no SBOM to compare it with")
    own, others = _sbom_facts(now), [_sbom_facts(document) for document in attested]
    if own not in others:
        lacks, more = sorted(others[-1] - own), sorted(own - others[-1])
        raise CheckFailedError(
            f"the SBOM differs: only in it {lacks[:3]}, only in the image {more[:3]}"
        )


def _sbom_facts(document: Mapping[str, Any]) -> set[str]:
    """Return what must be the same on every machine: where hashes are known from may differ."""
    try:
        properties = document["metadata"]["component"]["properties"]
        facts = {f"{fact['name']}={fact['value']}" for fact in properties}
        return facts | {str(component["purl"]) for component in document["components"]}
    except (KeyError, TypeError):
        return set()
