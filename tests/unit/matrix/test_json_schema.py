"""The committed JSON Schema accepts the matrix and refuses what the loader refuses."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from imgbuild.matrix.load import SCHEMA_NAME, schema_text
from imgbuild.project import Project


@pytest.fixture
def schema(project: Project) -> Any:
    return json.loads((project.root / "images" / SCHEMA_NAME).read_text())


def test_the_committed_schema_is_the_generated_one(project: Project) -> None:
    assert (project.root / "images" / SCHEMA_NAME).read_text() == schema_text()


def _as_an_editor_reads(project: Project) -> Any:
    """YAML 1.2, as editors have it: numbers and booleans, but times are text."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        key: [item for item in items if "timestamp" not in item[0]]
        for key, items in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return yaml.load(project.matrix.read_text(), Loader=Loader)  # noqa: S506 - a SafeLoader


def test_it_accepts_the_matrix(schema: Any, project: Project) -> None:
    jsonschema.validate(_as_an_editor_reads(project), schema)


def test_it_refuses_an_unknown_key(schema: Any, project: Project) -> None:
    document = _as_an_editor_reads(project)
    document["images"][0]["tensorboard"] = "2.2.2"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def test_it_refuses_a_short_sha256(schema: Any, project: Project) -> None:
    document = _as_an_editor_reads(project)
    document["horovod"]["0.15.2"]["sha256"] = "abc"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)
