"""The manifest of BuildKit in Kubernetes is what Kubernetes takes, field by field."""

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from conftest import ROOT

#: The first Kubernetes with `appArmorProfile`, and the newest that the schemas know.
VERSIONS = ("1.30", kubernetes_validate.latest_version())


def _documents() -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((ROOT / "examples" / "farm" / "buildkit.yaml").read_bytes())]


@pytest.mark.parametrize("version", VERSIONS)
def test_manifest_is_valid(version: str) -> None:
    documents = _documents()
    assert [one["kind"] for one in documents] == ["Service", "StatefulSet"]
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)
    documents[1]["spec"]["template"]["spec"]["container"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[1], version, strict=True)


def test_each_builder_is_reached_by_its_name_and_keeps_its_cache() -> None:
    service, builders = _documents()
    pod = builders["spec"]["template"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert builders["spec"]["serviceName"] == service["metadata"]["name"]
    (container,) = pod["spec"]["containers"]
    assert f":{service['spec']['ports'][0]['port']}" in "".join(container["args"])
    mounted = {one["name"] for one in container["volumeMounts"]}
    claimed = {one["metadata"]["name"] for one in builders["spec"]["volumeClaimTemplates"]}
    assert mounted == claimed | {one["name"] for one in pod["spec"]["volumes"]}
