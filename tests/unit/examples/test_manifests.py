"""The examples' Kubernetes manifests are what Kubeflow's operators take, field by field."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from closed_schema import Schema, faults, schema_of

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
OURS = ROOT / "tests" / "data" / "kubernetes"
#: A folder with the published definitions, in full.
PUBLISHED = os.environ.get("KUBEFLOW_DEFINITIONS")
WORKER = ("spec", "mpiReplicaSpecs", "Worker", "template", "spec", "containers", 0)
CHIEF = ("spec", "tfReplicaSpecs", "Chief", "template", "spec", "containers", 0)


@functools.cache
def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _definitions(kind: str) -> list[Path]:
    """Return the definitions of a resource: this project's own, and those published."""
    folders = (OURS, Path(PUBLISHED)) if PUBLISHED else (OURS,)
    return [path for folder in folders for path in sorted(folder.glob(f"*{kind.lower()}s*.yaml"))]


CASES = [
    pytest.param(
        manifest, definition, id=f"{manifest.name}-{definition.parent.name}-{definition.name}"
    )
    for manifest in MANIFESTS
    for definition in _definitions(_read(manifest)["kind"])
]


def _schema(definition: Path, manifest: Any) -> Schema:
    return schema_of(_read(definition), manifest["apiVersion"])


def test_there_are_manifests_and_each_is_judged() -> None:
    assert {path.name for path in MANIFESTS} >= {
        "mpijob.yaml",
        "mpijob-intelmpi.yaml",
        "tfjob.yaml",
    }
    assert {case.values[0] for case in CASES} == set(MANIFESTS)


@pytest.mark.parametrize(("manifest", "definition"), CASES)
def test_manifest_is_valid(manifest: Path, definition: Path) -> None:
    document = _read(manifest)
    assert faults(document, _schema(definition, document)) == []


def _changed(document: Any, path: tuple[str | int, ...], value: object) -> Any:
    """Return a copy with a value put at `path`, and what YAML shares no longer shared."""
    changed = json.loads(json.dumps(document))
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize("definition", _definitions("MPIJob"), ids=str)
@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("spec", "slotsPerWorkers"), 1, "'slotsPerWorkers' was unexpected"),
        (("spec", "slotsPerWorker"), "1", "'1' is not of type 'integer'"),
        (("spec", "slotsPerWorker"), 2**31, "greater than the maximum"),
        (("spec", "mpiImplementation"), "IntelMPI", "is not one of"),
        (("spec", "mpiReplicaSpecs", "Worker", "replica"), 2, "'replica' was unexpected"),
        ((*WORKER, "cmd"), ["sshd"], "'cmd' was unexpected"),
        ((*WORKER, "command"), "sshd -De", "is not of type 'array'"),
        ((*WORKER, "args"), [1], "1 is not of type 'string'"),
        ((*WORKER, "securityContext", "runAsUser"), "1000", "is not of type 'integer'"),
        ((*WORKER, "readinessProbe", "tcpSocket"), {}, "'port' is a required property"),
        ((*WORKER, "resources"), {"limits": {"cpu": [1]}}, "is not of type 'integer', 'string'"),
        (("metadata", "name"), "Upper_Case", "does not match"),
        (("kind",), "MpiJob", "'MPIJob' was expected"),
    ],
)
def test_a_wrong_mpijob_is_refused(
    definition: Path, path: tuple[str | int, ...], value: object, says: str
) -> None:
    document = _changed(_read(ROOT / "examples/kubernetes/mpijob.yaml"), path, value)
    found = faults(document, _schema(definition, document))
    assert len(found) == 1
    assert says in found[0]


@pytest.mark.parametrize("definition", _definitions("TFJob"), ids=str)
@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("spec", "tfReplicaSpec"), {}, "'tfReplicaSpec' was unexpected"),
        (("spec", "tfReplicaSpecs", "PS", "replicas"), "1", "is not of type 'integer'"),
        ((*CHIEF, "ports", 0, "port"), 1, "'port' was unexpected"),
        ((*CHIEF, "volumeMounts", 0, "mountPath"), None, "is not of type 'string'"),
    ],
)
def test_a_wrong_tfjob_is_refused(
    definition: Path, path: tuple[str | int, ...], value: object, says: str
) -> None:
    document = _changed(_read(ROOT / "examples/kubernetes/tfjob.yaml"), path, value)
    found = faults(document, _schema(definition, document))
    assert len(found) == 1
    assert says in found[0]
