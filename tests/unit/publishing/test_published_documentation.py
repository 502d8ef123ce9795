"""docs/published.md says what records and the index are."""

import re
from dataclasses import fields

import pytest

from imgbuild.matrix.tags import INDEX_TAG, RECORD_SUFFIX
from imgbuild.project import Project
from imgbuild.publishing import index, record
from imgbuild.settings import PublishingSettings


@pytest.fixture(scope="module")
def text(project: Project) -> str:
    return (project.root / "docs" / "published.md").read_text(encoding="utf-8")


def test_every_field_of_a_record_is_in_the_table_and_no_other(text: str) -> None:
    table = text.split("\n## A record\n")[1].split("\n## ", maxsplit=1)[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert named == {"schema", *(field.name for field in fields(record.Record))}


def test_kinds_of_documents(text: str) -> None:
    for kind in (record.ARTIFACT_TYPE, index.ARTIFACT_TYPE, RECORD_SUFFIX, INDEX_TAG):
        assert f"`{kind}`" in text


def test_defaults_of_trying_again(text: str) -> None:
    flat, settings = " ".join(text.split()), PublishingSettings()
    assert f"`publishing.attempts` times ({settings.attempts})" in flat
    assert f"`publishing.first_wait` seconds ({settings.first_wait:g})" in flat
