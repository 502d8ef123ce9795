"""A custom resource's structural schema as a JSON schema that refuses unknown fields.

Kubernetes drops unknown fields of a custom resource without a word (or warns, by the client), so a
misspelt one is not seen until the job does something else. Its schemas leave out what it takes for
granted, and have words of their own ("Extend the Kubernetes API with CustomResourceDefinitions",
section on structural schemas).
"""

from __future__ import annotations

from typing import Any

import jsonschema

Schema = dict[str, Any]
INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVES = "x-kubernetes-preserve-unknown-fields"
#: JSON schema knows these too; the rest of `format` is told by `type`.
KEPT = ("type", "enum", "pattern", "required", "minimum", "maximum", "minItems", "maxItems")
RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
#: The API server knows the metadata of every object, whatever the resource's schema says.
METADATA: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"},
        "namespace": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def closed(schema: Schema) -> Schema:
    """Return the schema with every object closed, unless it keeps unknown fields on purpose."""
    if schema.get(INT_OR_STRING):
        return {"type": ["integer", "string"]}
    found = {word: schema[word] for word in KEPT if word in schema}
    if schema.get("format") in RANGES:
        low, high = RANGES[schema["format"]]
        found = {"minimum": low, "maximum": high, **found}
    if "items" in schema:
        found["items"] = closed(schema["items"])
    if "properties" in schema:
        found["properties"] = {name: closed(s) for name, s in schema["properties"].items()}
    if schema.get("type") == "object":
        found["additionalProperties"] = _others(schema)
    return found


def _others(schema: Schema) -> bool | Schema:
    """Return what fields may be there that `properties` does not name."""
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        return closed(others)
    return bool(others or schema.get(PRESERVES))


def schema_of(definition: dict[str, Any], api_version: str) -> Schema:
    """Return the closed schema of one version in a CustomResourceDefinition."""
    group, _, version = api_version.partition("/")
    assert definition["spec"]["group"] == group
    (found,) = [v for v in definition["spec"]["versions"] if v["name"] == version and v["served"]]
    schema: Schema = found["schema"]["openAPIV3Schema"]
    metadata = closed(METADATA)
    kind = {"const": definition["spec"]["names"]["kind"]}
    whole = closed(schema)
    whole["properties"] |= {"metadata": metadata, "kind": kind}
    return {**whole, "required": ["apiVersion", "kind", "metadata", "spec"]}


def faults(manifest: Any, schema: Schema) -> list[str]:
    """Return what is wrong with a manifest, each fault with its place."""
    found = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    return sorted(f"{error.json_path}: {error.message}" for error in found)
