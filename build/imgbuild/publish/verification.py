"""Verify a published image: signature, attestations, record and tag, and what is in the image."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from imgbuild.build.context import Say
from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME
from imgbuild.engine.client import open_engine
from imgbuild.errors import CheckFailedError, InputError
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.tags import input_tag
from imgbuild.project import Project
from imgbuild.publish.record import Record, read_published
from imgbuild.registry.repository import Manifest, split_reference
from imgbuild.registry.repository_client import RegistryClient, connect
from imgbuild.registry.signing import Trust
from imgbuild.settings import Settings
from imgbuild.trust.sbom import locked_sbom

T = TypeVar("T")
Predicates = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class VerifiedFact:
    """One thing that was verified; ``problem`` is empty where it holds."""

    name: str
    problem: str = ""


@dataclass(frozen=True)
class Verification:
    """How a reference of a registry is verified, and by whose signatures."""

    reference: str
    trust: Trust
    project: Project
    settings: Settings
    say: Say

    def checks(self) -> list[VerifiedFact]:
        """Return what holds and what does not, in the order in which it was found.

        InputError: the reference is none, or the registry has nothing there.
        """
        facts: list[VerifiedFact] = []

        def attempt(name: str, work: Callable[..., T], *arguments: object) -> T | None:
            try:
                found = work(*arguments)
            except CheckFailedError as error:
                facts.append(VerifiedFact(name, str(error)))
                return None
            facts.append(VerifiedFact(name))
            return found

        repository, tag, digest = split_reference(self.reference)
        with closing(connect(repository, self.settings, self.say, "verify")) as registry:
            reference = digest or tag or "latest"
            manifest = registry.manifest(reference)
            if manifest is None:
                raise InputError(f"{registry.name} has no image {reference}.")
            exact = f"{registry.name}@{manifest.digest}"
            attempt("signature", self.trust.require_signature, exact)
            sboms = attempt("SBOM", self.trust.attested, exact, "cyclonedx")
            attempt("provenance", self.trust.attested, exact, "slsaprovenance1")
            if record := attempt("record", _record, registry, manifest, tag):
                attempt("contents", self._contents, exact, record, sboms or ())
        return facts

    def _contents(self, exact: str, record: Record, sboms: Predicates) -> None:
        """Compare the running image with its record and its SBOM; pulled for it, it is removed."""
        with open_engine(self.settings.engine) as engine:
            there = engine.inspect(exact)
            if there is None:
                self.say(f"pulling {exact}")
                engine.pull(exact)
            stored = there or engine.need(exact)
            try:
                labels = {NAME: record.image, INPUT_DIGEST: record.input_digest}
                wrong = {one for one, value in labels.items() if stored.labels.get(one) != value}
                if wrong:
                    raise CheckFailedError(
                        f"its record has other values for the labels {', '.join(sorted(wrong))}"
                    )
                matrix = load_matrix(self.project.matrix)
                sbom = locked_sbom(exact, stored, engine, self.project, matrix)
                _compare(json.loads(sbom), sboms)
            finally:
                if there is None:
                    engine.discard(stored.id)


def _record(registry: RegistryClient, manifest: Manifest, tag: str) -> Record:
    """Return the record of the image that is at a tag, which must be one of the record's."""
    found = read_published(registry)
    records = [one for one in found.whole if one.digest == manifest.digest]
    if not records:
        raise CheckFailedError("no record is about this image: it was not published by imgbuild")
    for record in records:
        if tag in {"", record.tag, *record.moving, input_tag(record.input_digest)}:
            return record
    raise CheckFailedError(
        f"the tag {tag} is at {records[-1].image} ({records[-1].tag}), whose record has no such "
        "tag: it was moved to another image"
    )


def _compare(now: Mapping[str, Any], attested: Predicates) -> None:
    """Return if an attested SBOM has the layers, labels and packages that the image has."""
    if not attested:
        raise CheckFailedError("there is no SBOM to compare it with")
    own, others = _facts(now), [_facts(document) for document in attested]
    if own not in others:
        lacks, more = sorted(others[-1] - own), sorted(own - others[-1])
        raise CheckFailedError(
            f"the SBOM differs: only in it {lacks[:3]}, only in the image {more[:3]}"
        )


def _facts(document: Mapping[str, Any]) -> set[str]:
    """Return what must be the same on every machine: where hashes are known from may differ."""
    try:
        properties = document["metadata"]["component"]["properties"]
        found = {f"{one['name']}={one['value']}" for one in properties}
        return found | {str(one["purl"]) for one in document["components"]}
    except (KeyError, TypeError):
        return set()
