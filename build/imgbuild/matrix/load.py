"""Load ``matrix.yaml`` with all its faults at once, and make its JSON Schema for editors."""

import json
from pathlib import Path

from imgbuild.matrix.model import Matrix
from imgbuild.matrix.references import find_faults
from imgbuild.matrix.rules import rule_faults
from imgbuild.matrix.tags import tag_faults
from imgbuild.yaml_file import check, read_document

SCHEMA_NAME = "matrix.schema.json"


def load_matrix(path: Path) -> Matrix:
    """Return the validated matrix.

    Raises:
        InputError: the file is unreadable, not YAML, or wrong; each fault as
            ``matrix.yaml:LINE:COLUMN``, what is wrong, and what is allowed.

    """
    document = read_document(path)
    matrix, faults = check(document, Matrix)
    broken = [*rule_faults(matrix), *tag_faults(matrix)] if matrix else []
    faults = [*faults, *find_faults(document.value), *broken]
    if matrix is None or faults:
        raise document.reject(faults)
    return matrix


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
