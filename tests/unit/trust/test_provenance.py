"""The provenance of a candidate: every input with its digest, every suite with its verdict."""

import json
import re
from dataclasses import replace

import pytest

from imgbuild.dockerfile.labels import BASE_DIGEST, INPUT_PARTS
from imgbuild.files import file_sha256, sha256
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.publish.candidate import PushCandidate
from imgbuild.settings import Settings
from imgbuild.suites.catalog import read_suites
from imgbuild.trust.provenance import LOCAL, PREDICATE_TYPE, provenance, statement

SBOM, REVISION = "{}\n", "c" * 40
OCI = "org.opencontainers.image"
REPORT = {"pins": {"verdict": "passed", "key": "sha256:k", "passed": 3}}


@pytest.fixture
def candidate(images: dict[str, Image]) -> PushCandidate:
    labels = {
        f"{OCI}.revision": REVISION,
        f"{OCI}.base.name": "debian:12",
        BASE_DIGEST: f"sha256:{'b' * 64}",
        INPUT_PARTS: json.dumps({"form": 2, "parts": {"uv": "0.13.8"}}),
    }
    image, total = images["tf-1.10-cpu-ubuntu"], f"sha256:{'a' * 64}"
    allowed = ("its base image is substituted",)
    return PushCandidate(image, "sha256:id", total, (), REPORT, allowed, labels=labels)


def test_every_input_has_its_digest(candidate: PushCandidate, project: Project) -> None:
    found = provenance(candidate, project, Settings(), SBOM)["buildDefinition"]
    image = candidate.image
    materials = {one.get("name", one.get("uri")): one for one in found["resolvedDependencies"]}
    digests = {name: [*one["digest"].values()] for name, one in materials.items()}
    assert digests.pop("revision") == [REVISION]
    assert digests.pop("base") == ["b" * 64]
    assert image.horovod
    assert digests.pop("Horovod") == [image.horovod.sha256]
    for name in image.lock_names:
        assert digests.pop(f"images/locks/{name}") == [file_sha256(project.locks / name)]
    dockerfile = f"images/dockerfiles/{image.name}/Dockerfile"
    assert digests.pop(dockerfile) == [file_sha256(project.root / dockerfile)]
    sources = {pin.source.rpartition("/")[2]: [pin.sha256] for pin in image.pins if pin.sha256}
    sources.pop(next(name for name in sources if "horovod" in name), None)
    assert sources.items() <= digests.items()
    assert {
        name for name in digests.keys() - sources.keys() if not name.endswith(".tar.bz2")
    } == set()
    assert all(re.fullmatch("[0-9a-f]{64}", one) for (one,) in digests.values())
    assert found["externalParameters"]["row"]["tensorflow"] == image.tensorflow
    assert found["internalParameters"] == {
        "inputDigest": candidate.input_digest,
        "substitutes": [*candidate.allowed],
        "inputs": {"uv": "0.13.8"},
        "epoch": image.matrix.epoch,
    }


def test_suites_have_the_digest_of_their_code_and_their_verdict(
    candidate: PushCandidate, project: Project
) -> None:
    details = provenance(candidate, project, Settings(), SBOM)["runDetails"]
    listed, pins = details["byproducts"]
    assert listed["digest"] == {"sha256": sha256(SBOM.encode())}
    (code,) = (suite.code for suite in read_suites(project.suites) if suite.name == "pins")
    assert pins["digest"] == {"sha256": code.removeprefix("sha256:")}
    assert pins["annotations"] == REPORT["pins"]
    assert details["builder"] == {"id": LOCAL}


def test_what_was_built_from_changed_files_is_of_no_revision(
    candidate: PushCandidate, project: Project
) -> None:
    labels = {
        **candidate.labels,
        f"{OCI}.revision": f"{REVISION}-dirty",
        f"{OCI}.source": "https://a/b",
    }
    found = provenance(replace(candidate, labels=labels), project, Settings(), SBOM)
    definition = found["buildDefinition"]
    assert not any("gitCommit" in one["digest"] for one in definition["resolvedDependencies"])
    assert definition["externalParameters"]["revision"] == f"{REVISION}-dirty"
    assert found["runDetails"]["builder"] == {"id": "https://a/b"}


def test_the_statement_is_of_one_image_and_the_same_every_time(
    candidate: PushCandidate, project: Project
) -> None:
    texts = [json.dumps(provenance(candidate, project, Settings(), SBOM)) for _ in range(2)]
    assert texts[0] == texts[1]
    found = statement("registry.invalid/tf", f"sha256:{'d' * 64}", json.loads(texts[0]))
    assert found["subject"] == [{"name": "registry.invalid/tf", "digest": {"sha256": "d" * 64}}]
    assert (found["_type"], found["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        PREDICATE_TYPE,
    )
