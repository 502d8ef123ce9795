"""Catalogue pages of the real matrix with made-up results and releases, for tests."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from imgbuild.catalog.entries import CatalogEntry
from imgbuild.catalog.page import catalog_page
from imgbuild.cli.image_layers import instruction
from imgbuild.cli.show_command import read_image_facts
from imgbuild.core.project import Project
from imgbuild.engine.types import Layer
from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.publish.record import Record
from imgbuild.suites.catalog import Suite
from imgbuild.suites.results import Check, SuiteResult, suite_result

REPOSITORY = "registry.example.org/ml/tensorflow"
BUILT, PUBLISHED = "tf-2.2-cpu-debian", "tf-2.2-gpu-ubuntu"
LAYERS = (
    Layer(None, 110_000_000, "debian root file system"),
    Layer(None, 29_000_000, "COPY /opt/python /opt/python # buildkit"),
    Layer(None, 0, "RUN nothing"),
    Layer(None, 660_000_000, "COPY /out/ / # buildkit"),
)
NOON = "2026-11-20T12:00:00Z"


def _result(suite: str, when: str, **checks: Any) -> SuiteResult:
    return suite_result(suite, **checks).model_copy(update={"before": when})


SUITES: dict[Suite, SuiteResult | None] = {
    Suite("pins", "every pin is right", None, ""): _result("pins", NOON, passed=17),
    Suite("nodes", "ranks on two nodes", None, ""): _result(
        "nodes", NOON, passed=2, failures=[Check(test="test_ranks", message="no")]
    ),
    Suite("gpu_runs", "it computes", None, ""): _result(
        "gpu_runs", NOON, skipped=[Check(test="test_adds", message="no driver")]
    ),
    Suite("running", "it ends", None, ""): _result("running", "2026-11-19T12:00:00Z", passed=3),
    Suite("tensorboard", "it serves", None, ""): None,
}
CHANGED = frozenset(suite for suite in SUITES if suite.name == "running")


def release(image: Image, name: str = "20261120.1", **changes: Any) -> Record:
    """Return the record of an image; its suites are left out."""
    digest = "sha256:" + "2" * 64
    record = Record(
        image=image.name,
        digest=digest,
        image_id=digest,
        size=1_234_567_890,
        release=name,
        tag=f"{image.tensorflow}-{image.variant}-{name}",
        moving=(),
        input_digest=digest,
        variant=image.variant,
        stack=image.stack,
        pins={pin.component: pin.version for pin in image.pins},
        report={},
        substitutes=(),
        published=f"{name[:4]}-{name[4:6]}-{name[6:8]}T10:11:12Z",
    )
    return replace(record, **changes)


def entry(image: Image, locks: Path) -> CatalogEntry:
    """Return an image of the matrix; of two there is more to say."""
    plain = CatalogEntry(
        image, read_image_facts(image, locks), read_lock(locks / image.lock_name).versions
    )
    if image.name == BUILT:
        return replace(plain, absence="", suites=SUITES, changed=CHANGED, layers=LAYERS)
    if image.name == PUBLISHED:
        return replace(
            plain,
            absence="",
            suites=dict([*SUITES.items()][:1]),
            layers=LAYERS,
            releases=(release(image), release(image, "20261101.1")),
            moving=(f"{image.minor}-gpu",),
        )
    return plain


def page(entries: Sequence[CatalogEntry], repository: str | None = REPOSITORY) -> str:
    return catalog_page(
        entries, instruction, repository=repository, has_engine=True, documented=True
    )


def sample_page(root: Path) -> str:
    """Return the page of all images of a checkout."""
    project = Project(root)
    images = all_images(load_matrix(project.matrix))
    return page([entry(image, project.locks) for image in images])


def large_page(root: Path, count: int) -> str:
    """Return the page of so many images, all different."""
    project = Project(root)
    matrix = load_matrix(project.matrix)
    known = [entry(image, project.locks) for image in all_images(matrix)]
    entries = []
    for number in range(count):
        one = known[number % len(known)]
        later = f"{one.image.minor}{number // len(known)}.0"
        releases = {**matrix.tensorflow, later: one.image.wheel}
        grown = matrix.model_copy(update={"tensorflow": releases})
        entries.append(replace(one, image=replace(one.image, tensorflow=later, matrix=grown)))
    return page(entries)
