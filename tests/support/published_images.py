"""Images in a registry in memory, and their records."""

from dataclasses import replace
from typing import Any

from imgbuild.publish.record import Record, put_record
from imgbuild.suites.results import Check, suite_result
from support.memory_registry import MemoryRegistry
from support.suite_results import stored

INPUT = "sha256:" + "1" * 64
NO_DRIVER = Check(test="test_adds", message="no driver")
RECORD = Record(
    image="tf-2.2-cpu-debian",
    digest="sha256:" + "2" * 64,
    image_id="sha256:" + "3" * 64,
    size=1_234_567_890,
    release="20261120.1",
    tag="2.2.0-cpu-py38-debian12-openmpi4.1.4-20261120.1",
    moving=("2.2-cpu", "2.2.0-cpu"),
    input_digest=INPUT,
    variant="cpu",
    stack="debian",
    pins={"tensorflow": "2.2.0", "horovod": "0.19.5"},
    report={
        "pins": stored(suite_result("pins", passed=12), "sha256:a"),
        "gpu_runs": stored(suite_result("gpu_runs", skipped=[NO_DRIVER] * 3), "sha256:b"),
    },
    substitutes=("cpython",),
    published="2026-11-20T10:11:12Z",
)


def publish(registry: MemoryRegistry, tag: str, **changes: Any) -> Record:
    """Put an image and its record there, and move its tags; return its record."""
    image = registry.add_image(tag)
    record = replace(RECORD, tag=tag, digest=image.digest, **changes)
    put_record(registry, record, image)
    for moving in record.moving:
        registry.tagged[moving] = record.digest
    return record


def external_parameters(record: Record) -> dict[str, Any]:
    """Return what the provenance of an image says of its row, release and tags."""
    return {
        "image": record.image,
        "platform": record.platform,
        "variant": record.variant,
        "pins": record.pins,
        "release": record.release,
        "tags": {"immutable": record.tag, "moving": [*record.moving]},
    }
