"""The JSON Schema of ``matrix.yaml``, for editors."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path

from imgbuild.matrix.model import Matrix

SCHEMA_NAME = "matrix.schema.json"


def version_note(checkout: Path) -> str:
    """Return a note if another version of imgbuild generated the checkout's files, else nothing.

    The matrix may have values that only the other version allows.
    """
    with suppress(OSError, ValueError):
        if (checkout / "images" / SCHEMA_NAME).read_text(encoding="utf-8") != schema_text():
            return (
                "\nAnother version of imgbuild generated the files of this folder. This version is "
                f"in {Path(__file__).parents[1]}. Run the other version here. Or adapt the files "
                "as CHANGELOG.md describes, and run `imgbuild render`."
            )
    return ""


@cache
def schema_text() -> str:
    """Return the text of ``images/matrix.schema.json``."""
    schema = Matrix.model_json_schema(by_alias=True)
    # Editors read `schema: 1` as a number, our loader reads it as text.
    schema["properties"]["schema"] = {"enum": [1, "1"]}
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "imgbuild matrix",
        **schema,
    }
    return json.dumps(document, indent=2) + "\n"
