"""docs/published.md says what records and the index are."""

import re
from dataclasses import fields, replace

import pytest
from published_images import RECORD

from imgbuild.cli.published_table import published_lines
from imgbuild.http import LARGEST_ANSWER, RetryPolicy
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import INDEX_TAG, RECORD_SUFFIX, planned_tags
from imgbuild.project import Project
from imgbuild.publishing import index, record
from imgbuild.registry.client import LARGEST_BLOB
from imgbuild.settings import PublishingSettings
from imgbuild.suites.catalog import list_suites

#: A row of the example, and the tags below it.
_ROW = re.compile(
    r"^(?P<image>tf-\S+) +(?P<digest>[0-9a-f]{12})  (?P<size>[0-9.]+)  (?P<day>\S+) (?P<time>\S+)"
    r"  (?P<passed>[0-9]+) passed\n(?P<tags>(  .+\n)+)",
    re.MULTILINE,
)


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
    assert f"kept up to {RetryPolicy().longest_asked / 60:g} minutes" in flat


def test_sizes(text: str) -> None:
    flat = " ".join(text.split())
    assert f"blob at most {LARGEST_BLOB >> 20} MiB" in flat
    assert f"every other answer {LARGEST_ANSWER >> 20} MiB" in flat


def test_the_example_is_what_is_printed_of_images_of_the_matrix(
    text: str, images: dict[str, Image], project: Project
) -> None:
    example = text.split("```\n")[1].partition("\n")[2].partition("…")[0]
    rows = list(_ROW.finditer(example))
    assert len(rows) == 2
    records = []
    for row in rows:
        immutable, *moving = row["tags"].split()
        release = immutable.rpartition("-")[2]
        planned = planned_tags(images[row["image"]], release)
        assert (immutable, tuple(moving)) == (planned.immutable, planned.moving)
        assert int(row["passed"]) == len(list_suites(project.suites, "cpu"))
        records.append(
            replace(
                RECORD,
                image=row["image"],
                digest=f"sha256:{row['digest']}",
                size=round(float(row["size"]) * 1e6),
                tag=immutable,
                moving=tuple(moving),
                suites=RECORD.suites[:1] * int(row["passed"]),
                published=f"{row['day']}T{row['time']}:00Z",
            )
        )
    assert published_lines(index.index_of(records)) == example.splitlines()
