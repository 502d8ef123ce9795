"""Read the entries of the catalog: pins, and the state of built and published images."""

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
from imgbuild.dockerfile.render import own_dockerfile
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
#: The reasons for missing results of an image.
NOT_BUILT = "is not built on this machine"
OTHER_INPUTS = "is in the engine, built from other inputs"
_FLAGS = re.compile(r" --\S+")


@dataclass(frozen=True)
class CatalogEntry:
    """An image in the matrix, with its state if this machine built it or it is published.

    - ``facts``: the output of ``show --json``
    - ``absence``: the end of a sentence if it is neither built nor published
    - ``suites``: the suites of its day, with their results, if any
    - ``changed``: suites that changed after their result
    - ``layers``: lowest first; packed if they are from a registry
    - ``releases``: newest first
    - ``moving``: the tags that point to the newest release
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
        """The size of all layers in bytes."""
        return sum(layer.size for layer in self.layers)

    @property
    def tested(self) -> bool:
        """Whether all suites have a current result and none failed; skipped ones are allowed."""
        results = [result for result in self.suites.values() if result]
        if self.changed or len(results) < len(self.suites):
            return False
        bad = {Outcome.FAILED, Outcome.TIMED_OUT}
        failed = any(result.verdict in bad for result in results)
        return not failed and any(result.passed for result in results)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The parts of the image that no longer get security fixes."""
        today = datetime.now(UTC).date()
        return tuple(find_unsupported_parts(self.image, today))

    @property
    def gpus(self) -> tuple[str, ...]:
        """The compute capabilities that the image has code for."""
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
    """Return the entries, the name of the repository, and whether there is an engine.

    ``repository`` is the one in the settings by default.

    MachineError: the repository does not answer.
    """
    settings = project.settings
    suites = read_suites(project.suites)
    entries = []
    for image, image_facts in facts:
        lock = read_lock(project.locks / image.lock_name)
        entries.append(CatalogEntry(image, image_facts, lock.versions))
    # Images from stand-ins are not the matrix's images.
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
            dockerfile = own_dockerfile(entry.image, project.templates)
            layers = name_stages(entry.layers, dockerfile.chain)
            entries[index] = replace(entry, layers=layers)
    return entries, name, built is not None


def add_built(
    entries: Sequence[CatalogEntry], project: Project, suites: Iterable[Suite], log: Log
) -> list[CatalogEntry] | None:
    """Return the entries with the state of their images in the engine; None without an engine."""
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
        log(f"note: the page does not show which images this machine built. {error}")
        return None
    return [*known.values()]


def _add_published(
    entry: CatalogEntry,
    *,
    published: PublishedRepository,
    registry: RegistryClient,
    suites: Iterable[Suite],
) -> CatalogEntry:
    """Return the entry with the image's latest release instead of this machine's build."""
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
    """Return the layers of a published image; empty if manifest and configuration disagree."""
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
    """Return the layers with the stages that they were copied from.

    An image's history does not contain stages, but the Dockerfile does. The stages are added if the
    last COPY steps of both are the same.
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
    """Return the suites in the record, with their results."""
    return {suite: record.report[suite.name] for suite in suites if suite.name in record.report}


def changed_suites(
    results: Mapping[Suite, SuiteResult | None], keys: Mapping[str, str]
) -> frozenset[Suite]:
    """Return the suites that changed after their result; ``keys`` are from `suite_keys`."""
    changed = set()
    for suite, result in results.items():
        if result and result.key != keys[suite.name]:
            changed.add(suite)
    return frozenset(changed)
