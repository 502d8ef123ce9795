"""The manifest of BuildKit in Kubernetes is what Kubernetes takes, field by field."""

from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

MANIFEST = Path(__file__).resolve().parents[3] / "examples" / "farm" / "buildkit.yaml"
#: The first Kubernetes with `appArmorProfile`, and the newest that the schemas know.
VERSIONS = ("1.30", kubernetes_validate.latest_version())


def _documents() -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("version", VERSIONS)
def test_manifest_is_valid(version: str) -> None:
    documents = _documents()
    assert [one["kind"] for one in documents] == ["Service", "StatefulSet"]
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "replica"), 2),
        (("spec", "template", "spec", "containers", 0, "args"), "--addr=x"),
        (("spec", "template", "spec", "containers", 0, "securityContext", "runAsUser"), "root"),
    ],
)
def test_a_wrong_manifest_is_refused(path: tuple[str | int, ...], value: object) -> None:
    document = place = _documents()[1]
    for step in path[:-1]:
        place = place[step]  # type: ignore[index]
    place[path[-1]] = value  # type: ignore[index]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_each_builder_is_reached_by_its_name_and_keeps_its_cache() -> None:
    service, builders = _documents()
    assert service["spec"]["selector"] == builders["spec"]["template"]["metadata"]["labels"]
    assert builders["spec"]["serviceName"] == service["metadata"]["name"]
    (container,) = builders["spec"]["template"]["spec"]["containers"]
    assert f":{service['spec']['ports'][0]['port']}" in "".join(container["args"])
    mounted = {one["name"] for one in container["volumeMounts"]}
    claimed = {one["metadata"]["name"] for one in builders["spec"]["volumeClaimTemplates"]}
    given = {one["name"] for one in builders["spec"]["template"]["spec"]["volumes"]}
    assert mounted == claimed | given
