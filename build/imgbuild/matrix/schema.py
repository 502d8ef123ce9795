"""The JSON Schema of ``matrix.yaml``, for editors."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path

from imgbuild.matrix.model import Matrix

SCHEMA_NAME = "matrix.schema.json"


def version_note(checkout: Path) -> str:
    """Return a paragraph if another version of imgbuild wrote the checkout's generated files.

    Its files may have values that only that version allows, which are no faults of the user's.
    """
    with suppress(OSError, ValueError):
        if (checkout / "images" / SCHEMA_NAME).read_text(encoding="utf-8") != schema_text():
            return (
                "\nAnother version of imgbuild rendered this folder than this one, which is in "
                f"{Path(__file__).parents[1]}. Run that version here; or adapt the files, as "
                "CHANGELOG.md says, and `imgbuild render`."
            )
    return ""


@cache
def schema_text() -> str:
    """Return the JSON Schema of ``matrix.yaml`` as the text that is committed."""
    schema = Matrix.model_json_schema(by_alias=True)
    # `schema: 1` is a number to YAML, and text to the loader.
    schema["properties"]["schema"] = {"enum": [1, "1"]}
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "imgbuild matrix",
        **schema,
    }
    return json.dumps(document, indent=2) + "\n"
