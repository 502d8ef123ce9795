"""Describe images for a comparison: pins, GPUs, packages, sizes and suites, if known."""

import re
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import get_args

from imgbuild.build.context import image_locks
from imgbuild.build.sizes import measure
from imgbuild.catalog.entries import (
    CatalogEntry,
    Log,
    add_built,
    recorded_suites,
)
from imgbuild.core.differences import changed_values
from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.user_folders import state_dir
from imgbuild.dockerfile.labels import MPI_FLAVOUR, PIN
from imgbuild.engine.client import open_engine
from imgbuild.locks.lockfile import locked_packages
from imgbuild.matrix.components import Flavour
from imgbuild.matrix.gpus import KernelSupport, gpu_support
from imgbuild.matrix.images import Image
from imgbuild.matrix.known_names import parse_known_name
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.selection import find_image
from imgbuild.matrix.tags import RELEASE
from imgbuild.net.repository import json_object, split_reference
from imgbuild.net.repository_client import connect
from imgbuild.publish.record import PublishedRepository, Record, read_published
from imgbuild.suites.catalog import Suite, read_suites
from imgbuild.suites.container import read_contents
from imgbuild.suites.results import SuiteResult
from imgbuild.suites.runner import folder_name
from imgbuild.suites.store import ReportStore

#: The word for the latest release.
PUBLISHED = "published"
#: Kinds of size: layers are unpacked in an engine and packed in a registry.
UNPACKED, PACKED, BUDGET = "unpacked", "packed", "budget"
_FLAVOURS = re.compile("|".join(get_args(Flavour)))
_MPI = "mpi flavour"

Value = str | int
#: Texts or sizes in bytes, by name, or the end of a sentence that says why they are unknown.
Section = Mapping[str, Value] | str
#: The sections of an image in the order of the output; ``title`` is its name.
Sections = dict[str, Section]
SECTIONS = ("pins", "gpus", "packages", "size", "suites")
_NOT_OF_MATRIX = "is not an image from matrix.yaml"
_NO_LIST = "has no list of packages in the registry"


def differing(first: Section, second: Section) -> dict[str, tuple[Value | None, Value | None]]:
    """Return the differing values of both by name; empty if one of the sections is unknown."""
    if isinstance(first, str) or isinstance(second, str):
        return {}
    return changed_values(first, second)


def describe_image(
    text: str, project: Project, matrix: Matrix, repository: str | None, log: Log
) -> Sections:
    """Return the sections of an image; ``repository`` has the releases.

    InputError: there is no such image.
    MachineError: the engine or the registry does not answer.
    """
    name, _, release = text.rpartition("@")
    if name and (release == PUBLISHED or RELEASE.fullmatch(release)):
        image = find_image(matrix, name)
        with closing(connect(repository, project.settings, log, "--from")) as registry:
            return _find_release(image.name, release, read_published(registry), project)
    try:
        image = find_image(matrix, text)
    except InputError:
        if {":", "/"} & {*text}:
            return _describe_reference(text, project, log)
        raise
    if parse_known_name(text):
        log(f"{text}: using {image.name}, with TensorFlow {image.tensorflow}.")
    return _describe_planned(image, project, log)


def _describe_planned(image: Image, project: Project, log: Log) -> Sections:
    """Describe an image in the matrix, with size and suites if this machine built it."""
    entries = [CatalogEntry(image)]
    if not project.settings.standin:  # images from stand-ins are not the matrix's
        suites = read_suites(project.suites)
        entries = add_built(entries, project, suites, log) or entries
    (entry,) = entries
    size: Section = entry.absence
    if not entry.absence:
        size = {UNPACKED: entry.size}
    elif image.budget:
        size = {BUDGET: image.budget}
    pins: dict[str, Value] = {pin.component: pin.version for pin in image.pins}
    pins[_MPI] = image.mpi.flavour
    packages = locked_packages(image, project.locks)
    verdicts = entry.absence or _verdicts(entry.suites, entry.changed)
    return {
        "title": image.name,
        "pins": pins,
        "gpus": _gpus(image),
        "packages": packages,
        "size": size,
        "suites": verdicts,
    }


def _find_release(
    name: str, release: str, published: PublishedRepository, project: Project
) -> Sections:
    records = [record for record in published.whole if record.image == name]
    for record in reversed(records):
        if release in {PUBLISHED, record.release}:
            return _describe_record(record, project)
    latest = ", ".join(record.release for record in records[-5:]) or "none"
    raise InputError(
        f"{published.name} has no release {release} of {name}. Latest releases: {latest}. "
        "`imgbuild release list` lists all releases."
    )


def _describe_record(record: Record, project: Project) -> Sections:
    pins: dict[str, Value] = {**record.pins}
    if flavour := _FLAVOURS.search(record.tag):
        pins[_MPI] = flavour[0]
    suites = read_suites(project.suites)
    results = recorded_suites(record, suites)
    return {
        "title": f"{record.image}@{record.release}",
        "pins": pins,
        "gpus": _NOT_OF_MATRIX,
        "packages": record.packages or _NO_LIST,
        "size": {PACKED: record.size},
        "suites": _verdicts(results),
    }


def _describe_reference(reference: str, project: Project, log: Log) -> Sections:
    """Describe an image in the engine, or if it is missing there, in its registry."""
    stored = None
    with open_engine(project.settings.engine) as engine:
        try:
            stored = engine.inspect(reference)
        except MachineError as error:
            log(f"note: {error}")
        if stored is None:
            return _describe_remote(reference, project, log)
        with image_locks([folder_name(reference)], engine.host, state_dir() / "locks"):
            contents = read_contents(reference, stored.id, engine)
        size = measure(reference, stored.id, engine).size
    stored_results = ReportStore(state_dir() / "reports").results(stored.id)
    results = {suite: stored_results.get(suite.name) for suite in read_suites(project.suites)}
    pins = _labelled_pins(stored.labels)
    if not pins:
        flavour, mpi = contents.mpi
        pins = {"tensorflow": contents.tensorflow, "python": contents.python}
        pins |= {"mpi": mpi, "os": contents.os[1], _MPI: flavour}
    return {
        "title": reference,
        "pins": pins,
        "gpus": _NOT_OF_MATRIX,
        "packages": contents.packages,
        "size": {UNPACKED: size},
        "suites": _verdicts(results),
    }


def _describe_remote(reference: str, project: Project, log: Log) -> Sections:
    """Describe an image in a registry, from its record or else from its labels."""
    repository, tag, digest = split_reference(reference)
    place = f"{reference} is not in the engine, and as one of a registry"
    with closing(connect(repository, project.settings, log, place)) as registry:
        manifest = registry.manifest(digest or tag or "latest")
        if manifest is None:
            raise InputError(f"Neither the engine nor the registry has an image {reference}.")
        for record in read_published(registry).whole:
            if record.digest == manifest.digest:
                return _describe_record(record, project)
        document = json_object(registry.blob(manifest.config_digest), f"The image {reference}")
    config = document.get("config")
    labels = config.get("Labels") if isinstance(config, Mapping) else None
    if not isinstance(labels, Mapping):
        labels = {}
    return {
        "title": reference,
        "pins": _labelled_pins(labels),
        "gpus": _NOT_OF_MATRIX,
        "packages": _NO_LIST,
        "size": {PACKED: sum(manifest.sizes())},
        "suites": "has no record",
    }


def _gpus(image: Image) -> Section:
    """Return the oldest driver and the compute capabilities that a GPU image supports."""
    if image.cuda is None:
        return {}
    capabilities: dict[KernelSupport, list[str]] = {KernelSupport.NATIVE: [], KernelSupport.PTX: []}
    for generation, support in gpu_support(image):
        if support in capabilities:
            capabilities[support].append(generation.capability)
    section: dict[str, Value] = {"oldest driver": image.cuda.driver}
    for support, names in capabilities.items():
        section[str(support)] = ", ".join(names) or "none"
    return section


def _verdicts(
    suites: Mapping[Suite, SuiteResult | None], changed: Collection[Suite] = ()
) -> dict[str, Value]:
    verdicts: dict[str, Value] = {}
    for suite, result in suites.items():
        if result and suite not in changed:
            verdicts[suite.name] = result.verdict
    return verdicts


def _labelled_pins(labels: Mapping[str, str]) -> dict[str, Value]:
    """Return the pins in an image's labels; empty if imgbuild did not build it."""
    pins: dict[str, Value] = {}
    for name, value in labels.items():
        if name.startswith(PIN):
            pins[name.removeprefix(PIN)] = value
    if pins and MPI_FLAVOUR in labels:
        pins[_MPI] = labels[MPI_FLAVOUR]
    return pins
