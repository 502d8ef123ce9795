"""The examples' manifests are what Kubeflow's operators and Kubernetes take, field by field."""

import os
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from support.closed_schema import faults, schema_of
from support.project_copy import ROOT

EXAMPLES = ROOT / "examples" / "kubernetes"
#: This project's own definitions; and a folder with the published ones, in full.
OURS, PUBLISHED = ROOT / "tests/data/kubernetes", os.environ.get("KUBEFLOW_DEFINITIONS")
FOLDERS = (OURS, Path(PUBLISHED)) if PUBLISHED else (OURS,)
WORKER = ("spec", "mpiReplicaSpecs", "Worker", "template", "spec", "containers", 0)
CHIEF = ("spec", "tfReplicaSpecs", "Chief", "template", "spec", "containers", 0)


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_bytes())


def _faults(kind: str, manifest: Any) -> list[list[str]]:
    """Return what is wrong with a manifest, by each definition of the resource."""
    definitions = [path for folder in FOLDERS for path in folder.glob(f"*{kind}s*.yaml")]
    assert len(definitions) >= len(FOLDERS)
    version = manifest["apiVersion"]
    return [faults(manifest, schema_of(_read(path), version)) for path in definitions]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_manifest_is_valid(path: Path) -> None:
    assert not any(_faults(path.stem.partition("-")[0], _read(path)))


@pytest.mark.parametrize(
    ("kind", "path", "value", "says"),
    [
        ("mpijob", ("spec", "slotsPerWorkers"), 1, "'slotsPerWorkers' was unexpected"),
        ("mpijob", ("spec", "slotsPerWorker"), "1", "'1' is not of type 'integer'"),
        ("mpijob", ("spec", "slotsPerWorker"), 2**31, "greater than the maximum"),
        ("mpijob", ("spec", "mpiImplementation"), "IntelMPI", "is not one of"),
        ("mpijob", (*WORKER, "cmd"), ["sshd"], "'cmd' was unexpected"),
        ("mpijob", (*WORKER, "args"), [1], "1 is not of type 'string'"),
        ("mpijob", (*WORKER, "readinessProbe", "tcpSocket"), {}, "'port' is a required property"),
        ("mpijob", (*WORKER, "resources"), {"limits": {"cpu": [1]}}, "type 'integer', 'string'"),
        ("mpijob", ("metadata", "name"), "Upper_Case", "does not match"),
        ("mpijob", ("kind",), "MpiJob", "'MPIJob' was expected"),
        ("tfjob", ("spec", "tfReplicaSpec"), {}, "'tfReplicaSpec' was unexpected"),
        ("tfjob", (*CHIEF, "volumeMounts", 0, "mountPath"), None, "is not of type 'string'"),
    ],
)
def test_a_wrong_field_is_refused(
    kind: str, path: tuple[str | int, ...], value: object, says: str
) -> None:
    manifest = place = _read(EXAMPLES / f"{kind}.yaml")
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    for found in _faults(kind, manifest):
        assert len(found) == 1
        assert says in found[0]


#: The first Kubernetes with `appArmorProfile`, and the newest that the schemas know.
VERSIONS = ("1.30", kubernetes_validate.latest_version())


def _buildkit() -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((ROOT / "examples" / "farm" / "buildkit.yaml").read_bytes())]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifest_of_buildkit_is_valid(version: str) -> None:
    documents = _buildkit()
    assert [one["kind"] for one in documents] == ["Service", "StatefulSet"]
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)
    documents[1]["spec"]["template"]["spec"]["container"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[1], version, strict=True)


def test_each_builder_is_reached_by_its_name_and_keeps_its_cache() -> None:
    service, builders = _buildkit()
    pod = builders["spec"]["template"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert builders["spec"]["serviceName"] == service["metadata"]["name"]
    (container,) = pod["spec"]["containers"]
    assert f":{service['spec']['ports'][0]['port']}" in "".join(container["args"])
    mounted = {one["name"] for one in container["volumeMounts"]}
    claimed = {one["metadata"]["name"] for one in builders["spec"]["volumeClaimTemplates"]}
    assert mounted == claimed | {one["name"] for one in pod["spec"]["volumes"]}
