"""The provenance of a candidate: every input with its digest, every suite with its verdict."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from imgbuild.core.files import file_sha256, sha256
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.labels import BASE_DIGEST, INPUT_PARTS
from imgbuild.engine.types import ARM64, StoredImage
from imgbuild.matrix.images import Image, for_other_architecture
from imgbuild.net.repository import DamagedError
from imgbuild.publish.candidate import PushCandidate
from imgbuild.publish.provenance import (
    LOCAL,
    make_provenance,
    make_statement,
    read_configuration,
)
from imgbuild.publish.signed_image import SignedImage, read_provenances
from imgbuild.suites.catalog import read_suites
from imgbuild.suites.results import attested_suites, suite_result
from support.memory_registry import MemoryRegistry
from support.published_images import RECORD
from support.suite_results import stored

SBOM, REVISION = "{}\n", "c" * 40
OCI = "org.opencontainers.image"
REPORT = {"pins": stored(suite_result("pins", passed=3), "sha256:k")}
PUBLISHED = replace(RECORD, release="20261127.1", tag="1.10.0-cpu-20261127.1", moving=("1.10-cpu",))
CONFIGURATION = {"os": "linux", "config": {"User": "me"}}


@pytest.fixture
def candidate(images: dict[str, Image]) -> PushCandidate:
    labels = {
        f"{OCI}.revision": REVISION,
        f"{OCI}.base.name": "debian:12",
        BASE_DIGEST: f"sha256:{'b' * 64}",
        INPUT_PARTS: json.dumps({"form": 2, "parts": {"uv": "0.13.8"}}),
    }
    stored, total = StoredImage("sha256:id", labels=labels), f"sha256:{'a' * 64}"
    allowed = ("its base image is substituted",)
    return PushCandidate(images["tf-1.10-cpu-ubuntu"], stored, total, REPORT, allowed)


def made(candidate: PushCandidate, project: Project, wheel: str | None = None) -> dict[str, Any]:
    return make_provenance(
        candidate, PUBLISHED, CONFIGURATION, project, Settings(), sbom=SBOM, wheel=wheel
    )


def test_every_input_has_its_digest_and_every_suite_its_verdict(
    candidate: PushCandidate, project: Project
) -> None:
    found, image = made(candidate, project, wheel="the key"), candidate.image
    definition, details = found["buildDefinition"], found["runDetails"]
    materials = {one.get("name", one.get("uri")): one for one in definition["resolvedDependencies"]}
    digests = {name: [*one["digest"].values()] for name, one in materials.items()}
    assert all(re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", one) for (one,) in digests.values())
    assert image.horovod
    expected = {"revision": REVISION, "base": "b" * 64, "Horovod": image.horovod.sha256}
    files = [f"images/locks/{name}" for name in image.lock_names]
    files.append(f"images/dockerfiles/{image.name}/Dockerfile")
    expected |= {file: file_sha256(project.root / file) for file in files}
    sources = {pin.source.rpartition("/")[2]: pin.sha256 for pin in image.pins if pin.sha256}
    expected |= {name: digest for name, digest in sources.items() if "horovod" not in name}
    assert {name: digests.get(name) for name in expected} == {n: [d] for n, d in expected.items()}
    assert all(name.endswith(".tar.bz2") for name in digests.keys() - expected.keys())
    external = definition["externalParameters"]
    assert external["row"]["tensorflow"] == image.tensorflow
    assert external["release"] == PUBLISHED.release
    assert external["tags"] == {"immutable": PUBLISHED.tag, "moving": ["1.10-cpu"]}
    assert definition["internalParameters"] == {
        "inputDigest": candidate.input_digest,
        "substitutes": [*candidate.allowed],
        "inputs": {"uv": "0.13.8"},
        "epoch": image.matrix.epoch,
        "configuration": CONFIGURATION,
        "horovodWheel": "the key",
    }
    listed, pins = details["byproducts"]
    assert listed["digest"] == {"sha256": sha256(SBOM.encode())}
    (code,) = (suite.code for suite in read_suites(project.suites) if suite.name == "pins")
    assert pins["digest"] == {"sha256": code.removeprefix("sha256:")}
    assert pins["annotations"] == REPORT["pins"].as_json()
    assert details["builder"] == {"id": LOCAL}
    assert made(candidate, project, wheel="the key") == found
    signed = make_statement("registry.invalid/tf", f"sha256:{'d' * 64}", found)
    assert signed["subject"] == [{"name": "registry.invalid/tf", "digest": {"sha256": "d" * 64}}]
    assert signed["predicateType"] == "https://slsa.dev/provenance/v1"


def test_read_provenances_reads_what_is_signed(candidate: PushCandidate, project: Project) -> None:
    predicate = made(candidate, project)
    (signed,) = read_provenances([json.loads(json.dumps(predicate))])
    assert signed == SignedImage(
        image=candidate.name,
        variant="cpu",
        pins={pin.component: pin.version for pin in candidate.image.pins},
        input_digest=candidate.input_digest,
        verdicts={"pins": "passed"},
        release=PUBLISHED.release,
        tag=PUBLISHED.tag,
        moving=PUBLISHED.moving,
        configuration=CONFIGURATION,
    )


def test_provenance_names_another_platform(
    candidate: PushCandidate, images: dict[str, Image], project: Project
) -> None:
    image = for_other_architecture(images["tf-2.15-cpu-debian"])
    assert image
    other = replace(candidate, image=image, stored=replace(candidate.stored, platform=ARM64))
    record = replace(PUBLISHED, platform=ARM64)
    predicate = make_provenance(other, record, CONFIGURATION, project, Settings(), sbom=SBOM)
    assert predicate["buildDefinition"]["externalParameters"]["platform"] == ARM64
    (signed,) = read_provenances([predicate])
    assert signed.platform == ARM64
    names = {one.get("name") for one in predicate["buildDefinition"]["resolvedDependencies"]}
    assert f"images/locks/{image.lock_name}" in names


def test_what_was_built_from_changed_files_is_of_no_revision(
    candidate: PushCandidate, project: Project
) -> None:
    dirty = {f"{OCI}.revision": f"{REVISION}-dirty", f"{OCI}.source": "https://a/b"}
    labels = {**candidate.stored.labels, **dirty}
    changed = replace(candidate, stored=replace(candidate.stored, labels=labels))
    found = made(changed, project)
    definition = found["buildDefinition"]
    assert not any("gitCommit" in one["digest"] for one in definition["resolvedDependencies"])
    assert definition["externalParameters"]["revision"] == f"{REVISION}-dirty"
    assert found["runDetails"]["builder"] == {"id": "https://a/b"}


def test_configuration_of_returns_all_but_the_history() -> None:
    registry = MemoryRegistry()
    config = {"Env": ["A=1"], "Entrypoint": ["/start"], "Healthcheck": {"Interval": 30_000_000_000}}
    manifest = registry.add_image("1", (b"one", b"two"), config=config, history=[{}], author="me")
    document = json.loads(registry.blobs[manifest.config_digest])
    assert document.pop("history") == [{}]
    assert read_configuration(registry, manifest) == document
    assert document["config"] == config


@pytest.mark.parametrize(
    "parts",
    [
        {"rootfs": {"diff_ids": []}},
        {"rootfs": {"diff_ids": [f"sha256:{'1' * 64}"] * 2}},
        {"rootfs": {"diff_ids": ["sha256:1"]}},
        {"rootfs": {"diff_ids": [["sha256:1"]]}},
        {"rootfs": {"diff_ids": "sha256:1"}},
        {"rootfs": [f"sha256:{'1' * 64}"]},
        {"config": ["Env"]},
        {"config": None, "Config": {"User": "root"}},
    ],
)
def test_configuration_of_another_form_is_refused(parts: dict[str, Any]) -> None:
    registry = MemoryRegistry()
    with pytest.raises(DamagedError):
        read_configuration(registry, registry.add_image("1", **parts))


@pytest.mark.parametrize("value", [None, [], "x", {"externalParameters": {"tags": None}}])
def test_provenance_of_another_program_says_nothing(value: object) -> None:
    """The same identity may sign what its other programs build."""
    predicate = {"buildDefinition": value, "runDetails": value}
    byproducts = {"runDetails": {"byproducts": ["x", {"name": 1}, value]}}
    assert attested_suites([predicate, byproducts]) == {}
