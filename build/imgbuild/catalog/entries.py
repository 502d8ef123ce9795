"""Entries of the catalogue: each image's pins, and its state if it is built or published."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.sizes import measure
from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.files import parse_strict_json
from imgbuild.core.outcome import Outcome
from imgbuild.core.parallel import in_parallel
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Stage
from imgbuild.engine.types import Layer
from imgbuild.locks.lockfile import read_lock
from imgbuild.matrix.images import Image
from imgbuild.net.repository_client import LARGEST_DOCUMENT, RegistryClient, connect
from imgbuild.plan.plan import NEVER_BUILT, NO_RECORD
from imgbuild.publish.record import PublishedRepository, Record, read_published
from imgbuild.scan.findings import Scan, find_unsupported_parts, read_scan
from imgbuild.suites.catalog import Suite, read_suites
from imgbuild.suites.results import SuiteResult

Log = Callable[[str], None]
#: Why nothing is known of an image.
NOT_BUILT = "is not built here"
OTHER_INPUTS = "is in the engine, built from other inputs"
_FLAGS = re.compile(r" --\S+")


@dataclass(frozen=True)
class CatalogEntry:
    """An image of the matrix, and what is known of it if it is built here or published.

    ``facts`` are what ``show --json`` prints of it. ``absence`` is a sentence if it is neither
    built here nor published. ``suites`` are those of its day, each with its result, if any;
    ``changed`` are suites that changed since their result. ``layers`` are the lowest first; those
    of a registry are packed. ``releases`` are the newest first, and ``moving`` the tags that point
    to the first.
    """

    image: Image
    facts: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    absence: str = NOT_BUILT
    suites: Mapping[Suite, SuiteResult | None] = field(default_factory=dict)
    changed: frozenset[Suite] = frozenset()
    layers: tuple[Layer, ...] = ()
    #: The latest scan on this machine.
    scan: Scan | None = None
    releases: tuple[Record, ...] = ()
    moving: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of all layers."""
        return sum(layer.size for layer in self.layers)

    @property
    def tested(self) -> bool:
        """Whether no suite failed, has changed or lacks a result; one without GPUs is skipped."""
        results = [result for result in self.suites.values() if result]
        if self.changed or len(results) < len(self.suites):
            return False
        bad = {Outcome.FAILED, Outcome.TIMED_OUT}
        failed = any(result.verdict in bad for result in results)
        return not failed and any(result.passed for result in results)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Its parts that get no security fixes any more."""
        today = datetime.now(UTC).date()
        return tuple(find_unsupported_parts(self.image, today))

    @property
    def gpus(self) -> tuple[str, ...]:
        """The compute capabilities that it has code for."""
        gpu = self.facts["gpu"]
        generations = gpu["generations"] if gpu else ()
        served = [generation for generation in generations if generation["service"] != "nothing"]
        return tuple(generation["capability"] for generation in served)


def read_catalog(
    project: Project,
    facts: Sequence[tuple[Image, Mapping[str, Any]]],
    repository: str | None,
    log: Log,
) -> tuple[list[CatalogEntry], str | None, bool]:
    """Return what is known of images, the repository that was read, and whether there is an engine.

    ``repository`` is by default the settings'.

    MachineError: a repository is named and does not answer.
    """
    settings = project.settings
    suites = read_suites(project.suites)
    entries = []
    for image, image_facts in facts:
        lock = read_lock(project.locks / image.lock_name)
        entries.append(CatalogEntry(image, image_facts, lock.versions))
    # Images that are built from stand-ins are not of the matrix.
    built = None if settings.standin else add_built(entries, project, suites, log)
    entries = built or entries
    name = None
    if repository or settings.publishing.repository:
        with closing(connect(repository, settings, log, "--published")) as registry:
            published = read_published(registry)
            add = partial(_add_published, published=published, registry=registry, suites=suites)
            entries = in_parallel(add, entries, 8)
        name = published.name
        for fault in published.faults():
            log(f"note: {fault}")
    for index, entry in enumerate(entries):
        if entry.layers:
            dockerfile = render_dockerfile(entry.image, project.templates)
            layers = name_stages(entry.layers, dockerfile.chain)
            entries[index] = replace(entry, layers=layers)
    return entries, name, built is not None


def add_built(
    entries: Sequence[CatalogEntry], project: Project, suites: Iterable[Suite], log: Log
) -> list[CatalogEntry] | None:
    """Return the entries with what the engine has of their images; None without an engine."""
    images = tuple(entry.image for entry in entries)
    known = {entry.image.name: entry for entry in entries}
    try:
        with open_context(project, images, BuildOptions(), log) as context:
            for item in context.plan(test=False):
                name = item.image.name
                if item.image_id:
                    keys = context.suite_keys[name]
                    stored = context.store.results(item.image_id)
                    results = {
                        suite: stored.get(suite.name) for suite in suites if suite.name in keys
                    }
                    changed = changed_suites(results, keys)
                    size = measure(name, item.image_id, context.engine)
                    scan = read_scan(item.image_id, context.state)
                    known[name] = replace(
                        known[name],
                        absence="",
                        suites=results,
                        changed=changed,
                        layers=size.layers,
                        scan=scan,
                    )
                elif item.reason not in {NEVER_BUILT, NO_RECORD}:
                    known[name] = replace(known[name], absence=OTHER_INPUTS)
    except MachineError as error:
        log(f"note: images that are built here are not shown as such. {error}")
        return None
    return [*known.values()]


def _add_published(
    entry: CatalogEntry,
    *,
    published: PublishedRepository,
    registry: RegistryClient,
    suites: Iterable[Suite],
) -> CatalogEntry:
    """Return the entry with the latest release of its image in place of the one built here."""
    name = entry.image.name
    releases = [record for record in published.whole if record.image == name]
    if not releases:
        return entry
    releases.reverse()
    latest = releases[0]
    results = recorded_suites(latest, suites)
    layers = packed_layers(latest, registry)
    moving = published.moving(latest)
    return replace(
        entry,
        absence="",
        suites=results,
        changed=frozenset(),
        layers=layers,
        scan=None,
        releases=tuple(releases),
        moving=moving,
    )


def packed_layers(record: Record, registry: RegistryClient) -> tuple[Layer, ...]:
    """Return the layers of a published image; none if its manifest and configuration disagree."""
    try:
        manifest = registry.manifest(record.digest)
        if manifest is None:
            return ()
        blob = registry.blob(manifest.config_digest, LARGEST_DOCUMENT)
        config = parse_strict_json(blob)
        steps = []
        for step in config.get("history", ()):
            if not step.get("empty_layer"):
                made_by = step.get("created_by", "")
                steps.append(str(made_by))
        sizes = manifest.sizes()[1:]
        return tuple(Layer(None, size, step) for size, step in zip(sizes, steps, strict=True))
    except (CheckFailedError, AttributeError, KeyError, TypeError, ValueError):
        return ()


def name_stages(layers: Sequence[Layer], chain: Iterable[Stage]) -> tuple[Layer, ...]:
    """Return the layers with the stages that they are copied from.

    A history does not say them, the Dockerfile's stages do: where their last copies are the same,
    they are the same steps.
    """
    copies = []
    for stage in chain:
        lines = (instruction.line for instruction in stage.instructions)
        copies += [line for line in lines if line.startswith("COPY ")]
    named = [*layers]
    indices = [index for index, layer in enumerate(layers) if layer.made_by.startswith("COPY ")]
    indices = indices[-len(copies) :] if copies else []
    steps = [layers[index].made_by.removesuffix("# buildkit").strip() for index in indices]
    if steps == [_FLAGS.sub("", line) for line in copies]:
        for index, line in zip(indices, copies, strict=True):
            named[index] = named[index]._replace(made_by=line.replace(" --link", ""))
    return tuple(named)


def recorded_suites(record: Record, suites: Iterable[Suite]) -> dict[Suite, SuiteResult | None]:
    """Return the suites that ran before the image was published, with their results."""
    return {suite: record.report[suite.name] for suite in suites if suite.name in record.report}


def changed_suites(
    results: Mapping[Suite, SuiteResult | None], keys: Mapping[str, str]
) -> frozenset[Suite]:
    """Return the suites that changed since their result; ``keys`` are those of `suite_keys`."""
    changed = set()
    for suite, result in results.items():
        if result and result.key != keys[suite.name]:
            changed.add(suite)
    return frozenset(changed)
