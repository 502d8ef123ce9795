"""The JSON Schema of ``matrix.yaml``, generated from the models, so that editors complete it."""

import json

from imgbuild.matrix.model import Matrix

SCHEMA_NAME = "matrix.schema.json"


def schema_text() -> str:
    """Return the schema as the text that is committed."""
    schema = Matrix.model_json_schema(by_alias=True)
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "imgbuild matrix",
        **_numbers_too(schema),
    }
    return json.dumps(document, indent=2) + "\n"


def _numbers_too(schema: dict[str, object]) -> dict[str, object]:
    """Let ``schema: 1`` be the number YAML takes it for; the loader reads all scalars as text."""
    properties = schema["properties"]
    if isinstance(properties, dict):
        properties["schema"] = {"enum": [1, "1"]}
    return schema
