"""Records of published images: whole or refused, and only of the image that they lie beside."""

import json
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from imgbuild.cli.release_list_command import published_json
from imgbuild.matrix.tags import record_tag
from imgbuild.net.http import LARGEST_ANSWER, Answer
from imgbuild.net.repository import DamagedError
from imgbuild.net.repository_client import LARGEST_DOCUMENT
from imgbuild.publish.record import (
    ARTIFACT_TYPE,
    parse_record,
    put_record,
    read_build_seconds,
    read_published,
    read_record,
)
from imgbuild.suites.results import suite_result
from support.memory_registry import MemoryRegistry
from support.published_images import RECORD, publish

TAG, WHERE = RECORD.tag, "registry.test/app:1.record"

PINS = RECORD.report["pins"].as_json()
ENTRIES: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("verdict", {"verdict": ["passed"]}), ("seconds", {"seconds": inf})),
    *(("passed", {"passed": 10**400}), ("passed", {"passed": -1})),
    *(("skipped", {"skipped": 3}), ("skipped.0", {"skipped": ["x"]})),
)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        *(({"schema": 2}, "schema 2"), ({"digest": "sha256:12"}, "digest")),
        *(({"image_id": ""}, "image_id"), ({"input_digest": None}, "input_digest")),
        *(({"size": -1}, "size"), ({"size": "big"}, "size"), ({"size": 10**400}, "size")),
        *(({"release": "1" * 6000}, "release"), ({"published": "yesterday"}, "published")),
        *(({"tag": "with space"}, "tag"), ({"moving": "2.2"}, "moving")),
        *(({"moving": [".x"]}, "moving.0"), ({"pins": {"tensorflow": 2}}, "pins.tensorflow")),
        ({"packages": {"numpy": "1" * 6000}}, "packages.numpy"),
        ({"retired_reason": "x\n✓ record"}, "retired_reason"),
        ({"report": {"pins": {**PINS, "suite": "x\r"}}}, "report.pins.suite"),
        ({"report": []}, "report"),
        ({"report": {"pins": []}}, "report.pins"),
        ({"report": {"pins": {"suite": "pins"}}}, "report.pins.verdict"),
        *(
            ({"report": {"pins": {**PINS, **entry}}}, f"report.pins.{key}")
            for key, entry in ENTRIES
        ),
    ],
)
def test_nonsense_is_refused(change: dict[str, Any], key: str) -> None:
    with pytest.raises(DamagedError, match=f"{key}[:;] "):
        parse_record({**RECORD.as_json(), **change}, WHERE)


def test_of_one_second_the_later_release_is_the_later_record() -> None:
    """The tenth of a day comes after the ninth: a release is no text."""
    ninth, tenth = (replace(RECORD, release=f"20261120.{number}") for number in (9, 10))
    assert ninth.age < tenth.age < replace(ninth, published="2026-11-20T10:11:13Z").age


def test_the_latest_record_says_how_much_work_an_image_was(registry: MemoryRegistry) -> None:
    report = {"pins": suite_result("pins", passed=1, seconds=4.5)}
    for day, seconds in ((20, 60.0), (21, 70.0)):
        release, published = f"202611{day}.1", f"2026-11-{day}T10:00:00Z"
        times = {"build_seconds": seconds, "report": report}
        publish(registry, f"one-{release}", release=release, published=published, **times)
    publish(registry, "of-before", image="tf-1.15-cpu-debian")
    assert read_build_seconds(registry) == {RECORD.image: 74.5}


def test_a_record_lies_beside_its_image(registry: MemoryRegistry) -> None:
    record = publish(registry, TAG)
    assert registry.tags() == tuple(sorted([TAG, f"{TAG}.record", *RECORD.moving]))
    assert read_record(registry, TAG) == record
    assert read_record(registry, "other") is None
    later = {**json.loads(json.dumps(record.as_json())), "later": "what a later imgbuild writes"}
    assert parse_record(later, WHERE) == record
    assert read_published(registry).whole == (record,)
    registry.tagged[TAG] = registry.add_image("other").digest
    assert read_published(registry).whole == (), "its tag is at another image"


def test_wrong_record_is_not_written_and_left_out(
    registry: MemoryRegistry,
) -> None:
    good, image = publish(registry, TAG), registry.add_image("bad")
    bad = replace(RECORD, tag="bad", digest=image.digest, published="now")
    with pytest.raises(DamagedError, match="published: "):
        put_record(registry, bad, image)
    assert "bad.record" not in registry.tags()
    registry.put_artifact("bad.record", ARTIFACT_TYPE, json.dumps(bad.as_json()).encode(), image)
    found = read_published(registry)
    assert found.records == (good,)
    assert [text for text in found.faults() if "bad.record" in text]


def test_a_record_of_another_image(registry: MemoryRegistry) -> None:
    publish(registry, "other")
    registry.tagged[record_tag(TAG)] = registry.tagged[record_tag("other")]
    with pytest.raises(DamagedError, match="other"):
        read_record(registry, TAG)
    content = json.dumps(publish(registry, TAG).as_json()).encode()
    other = registry.add_image("other")
    registry.put_artifact(record_tag(TAG), ARTIFACT_TYPE, content, other)
    with pytest.raises(DamagedError, match=other.digest):
        read_record(registry, TAG)


def test_record_keeps_the_verdict_of_another_version() -> None:
    skipped = [{"test": "a", "reason": "no GPU"}]
    report = {"pins": {**PINS, "verdict": "passed", "skipped": skipped}}
    record = parse_record({**RECORD.as_json(), "report": report}, WHERE)
    assert record.report["pins"].verdict == "passed"


def test_record_that_is_nested_deeply_is_damaged(registry: MemoryRegistry) -> None:
    """It is named and left out, and what is printed of the others is whole."""
    record = publish(registry, "2.2.0-cpu-20261120.1")
    image = registry.manifests[record.digest]
    nested = "[" * 700 + "]" * 700
    text = json.dumps(record.as_json()).replace('"skipped": []', f'"x": {nested}')
    assert nested in text
    registry.put_artifact(record_tag(record.tag), ARTIFACT_TYPE, text.encode(), image)
    found = read_published(registry)
    assert len(found.damaged) == 1
    assert published_json(found) == []


def test_record_that_is_too_large_is_not_read(registry: MemoryRegistry) -> None:
    limits: list[int] = []

    def ask(*arguments: Any, most: int = 0, **named: Any) -> Answer:
        limits.append(most)
        return MemoryRegistry.ask(registry, *arguments, **named)

    record = publish(registry, "2.2.0-cpu-20261120.1")
    registry.ask = ask  # type: ignore[method-assign]
    assert read_record(registry, record.tag) == record
    assert max(limits) == LARGEST_ANSWER
    assert limits[-1] == LARGEST_DOCUMENT
