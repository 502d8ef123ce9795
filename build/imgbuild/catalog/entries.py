"""What the catalogue knows of each image: its pins, and the image itself where there is one."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from imgbuild.build.context import BuildOptions, open_context
from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Stage
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.files import parse_strict_json
from imgbuild.matrix.images import Image
from imgbuild.parallel import in_parallel
from imgbuild.plan.plan import NEVER_BUILT, NO_RECORD
from imgbuild.project import Project
from imgbuild.publish.record import PublishedRepository, Record, read_published, skip_reasons
from imgbuild.registry.repository_client import LARGEST_DOCUMENT, RegistryClient, connect
from imgbuild.scan.findings import Scan, find_unsupported_parts, read_scan
from imgbuild.sizes import Layer, measure
from imgbuild.suites.catalog import Suite, read_suites

Log = Callable[[str], None]
#: Why nothing is known of an image.
NOT_BUILT = "is not built here"
OTHER_INPUTS = "is in the engine, built from other inputs"
_FLAGS = re.compile(r" --\S+")


class SuiteLine(NamedTuple):
    """What one suite found; without ``verdict`` nothing, and not ``current`` if it changed since.

    ``when`` is the ISO 8601 time of the result.
    """

    suite: Suite
    verdict: str = ""
    passed: int = 0
    skipped: tuple[str, ...] = ()
    when: str = ""
    current: bool = True


@dataclass(frozen=True)
class KnownImage:
    """An image that exists: the engine's, or, with ``release``, the published one.

    ``layers`` are the lowest first; those of a registry are packed.
    """

    suites: tuple[SuiteLine, ...]
    layers: tuple[Layer, ...]
    release: str | None = None
    #: The latest scan on this machine.
    scan: Scan | None = None

    @property
    def size(self) -> int:
        """The bytes of all layers."""
        return sum(layer.size for layer in self.layers)

    @property
    def tested(self) -> bool:
        """Whether no suite failed, has changed or lacks a result; one without GPUs is skipped."""
        bad = {"", "failed", "timed out"}
        fine = all(one.current and one.verdict not in bad for one in self.suites)
        return fine and any(one.passed for one in self.suites)


@dataclass(frozen=True)
class CatalogEntry:
    """One image; ``known`` is a sentence if it is neither published nor built here.

    ``shown`` is what ``show --json`` prints of it. ``releases`` are the newest first, and
    ``moving`` the tags that point to the first.
    """

    image: Image
    shown: Mapping[str, Any]
    packages: Mapping[str, str]
    known: KnownImage | str = NOT_BUILT
    releases: tuple[Record, ...] = ()
    moving: tuple[str, ...] = ()

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Its parts that get no security fixes any more."""
        return tuple(find_unsupported_parts(self.image, datetime.now(UTC).date()))

    @property
    def gpus(self) -> tuple[str, ...]:
        """The compute capabilities that it has code for."""
        generations = self.shown["gpu"]["generations"] if self.shown["gpu"] else ()
        return tuple(one["capability"] for one in generations if one["service"] != "nothing")


@dataclass(frozen=True)
class Catalog:
    """All images; the repository whose records were read; whether an engine was asked."""

    entries: Sequence[CatalogEntry]
    repository: str | None
    engine: bool


def read_catalog(
    project: Project,
    shown: Sequence[tuple[Image, Mapping[str, Any]]],
    repository: str | None,
    log: Log,
) -> Catalog:
    """Return what is known of images; ``repository`` is by default the settings'.

    MachineError: a repository is named and does not answer.
    """
    settings, suites = project.settings, read_suites(project.suites)
    images = tuple(image for image, _ in shown)
    # What is built from stand-ins is no image of the matrix.
    built = None if settings.standin else built_images(project, images, suites, log)
    published, known = PublishedRepository("", (), {}), {**(built or {})}
    if repository or settings.publishing.repository:
        with closing(connect(repository, settings, log, "--published")) as registry:
            published = read_published(registry)
            latest = {record.image: record for record in published.whole}  # the latest is the last
            read = partial(published_image, registry=registry, suites=suites)
            known |= zip(latest, in_parallel(read, [*latest.values()], 8), strict=True)
        for text in published.faults():
            log(f"note: {text}")
    entries = []
    for image, one in shown:
        found = known.get(image.name, NOT_BUILT)
        if isinstance(found, KnownImage):
            found = with_stages(found, render_dockerfile(image, project.templates).chain)
        packages = read_lock(project.locks / image.lock_name).versions
        records = tuple(one for one in published.whole[::-1] if one.image == image.name)
        moving = published.moving(records[0]) if records else ()
        entries.append(CatalogEntry(image, one, packages, found, records, moving))
    return Catalog(entries, published.name or None, built is not None)


def built_images(
    project: Project, images: tuple[Image, ...], suites: tuple[Suite, ...], log: Log
) -> dict[str, KnownImage | str] | None:
    """Return what the engine has of these images; None without an engine.

    Of an image that was built from other inputs, it is a sentence.
    """
    known: dict[str, KnownImage | str] = {}
    try:
        with open_context(project, images, BuildOptions(), log) as context:
            for item in context.plan(test=False):
                name = item.image.name
                if item.image_id:
                    keys = context.suite_keys[name]
                    own = tuple(suite for suite in suites if suite.name in keys)
                    lines = suite_lines(own, context.store.document(item.image_id), keys)
                    layers = measure(name, item.image_id, context.engine).layers
                    scan = read_scan(item.image_id, context.state)
                    known[name] = KnownImage(lines, layers, scan=scan)
                elif item.reason not in {NEVER_BUILT, NO_RECORD}:
                    known[name] = OTHER_INPUTS
    except MachineError as error:
        log(f"note: images that are built here are not shown as such. {error}")
        return None
    return known


def published_image(
    record: Record, registry: RegistryClient, suites: Iterable[Suite]
) -> KnownImage:
    """Return a published image, with the suites of its day.

    It has no layers where manifest or configuration do not say them.
    """
    lines = suite_lines([one for one in suites if one.name in record.report], record.report)
    known = KnownImage(lines, (), record.release)
    try:
        manifest = registry.manifest(record.digest)
        sizes = manifest.sizes()[1:] if manifest else ()
        content = registry.blob(manifest.config_digest, LARGEST_DOCUMENT) if manifest else b"{}"
        config = parse_strict_json(content)
        history = config.get("history", ())
        steps = [str(one.get("created_by", "")) for one in history if not one.get("empty_layer")]
        layers = tuple(Layer(None, *pair) for pair in zip(sizes, steps, strict=True))
    except (CheckFailedError, AttributeError, KeyError, TypeError, ValueError):
        return known
    return replace(known, layers=layers)


def with_stages(known: KnownImage, chain: Iterable[Stage]) -> KnownImage:
    """Return the image with the stages that its layers are copied from.

    A history does not say them, the Dockerfile's stages do: where their last copies are the same,
    they are the same steps.
    """
    lines = [one.line for stage in chain for one in stage.instructions]
    copies = [line for line in lines if line.startswith("COPY ")]
    layers = [*known.layers]
    indices = [index for index, layer in enumerate(layers) if layer.made_by.startswith("COPY ")]
    indices = indices[-len(copies) :] if copies else []
    steps = [layers[index].made_by.removesuffix("# buildkit").strip() for index in indices]
    if steps == [_FLAGS.sub("", line) for line in copies]:
        for index, line in zip(indices, copies, strict=True):
            layers[index] = layers[index]._replace(made_by=line.replace(" --link", ""))
    return replace(known, layers=tuple(layers))


def suite_lines(
    suites: Iterable[Suite], report: Mapping[str, Any], keys: Mapping[str, str] | None = None
) -> tuple[SuiteLine, ...]:
    """Return a line for each suite; with ``keys``, a result of another form is not current."""
    lines = []
    for suite in suites:
        line, entry = SuiteLine(suite), report.get(suite.name)
        if isinstance(entry, Mapping):
            found = str(entry.get("verdict", "")), int(entry.get("passed", 0)), skip_reasons(entry)
            current = keys is None or entry.get("key") == keys.get(suite.name)
            line = SuiteLine(suite, *found, str(entry.get("before") or ""), current)
        lines.append(line)
    return tuple(lines)
