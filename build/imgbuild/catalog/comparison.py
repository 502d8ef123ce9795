"""Two images side by side: pins, GPUs, packages, sizes, suites, as far as each is known."""

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import get_args

from imgbuild.build.context import image_locks
from imgbuild.catalog.entries import KnownImage, Log, built_images, published_image, suite_lines
from imgbuild.dockerfile.labels import MPI_FLAVOUR, PIN
from imgbuild.dockerfile.lockfile import locked_packages
from imgbuild.engine.client import open_engine
from imgbuild.errors import InputError, MachineError
from imgbuild.matrix.components import Flavour
from imgbuild.matrix.gpus import KernelSupport, gpu_support
from imgbuild.matrix.images import Image
from imgbuild.matrix.known_names import parse_known_name
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from imgbuild.matrix.tags import RELEASE
from imgbuild.project import Project
from imgbuild.publish.record import Record, read_published
from imgbuild.registry.repository import json_object, split_reference
from imgbuild.registry.repository_client import RegistryClient, connect
from imgbuild.sizes import measure
from imgbuild.suites.catalog import read_suites
from imgbuild.suites.container import read_contents
from imgbuild.suites.results import ReportStore
from imgbuild.suites.runner import folder_name
from imgbuild.user_folders import state_dir

#: In place of a release: the latest one.
PUBLISHED = "published"
#: What a size is of: a layer is unpacked in an engine, packed in a registry.
UNPACKED, PACKED, BUDGET = "unpacked", "packed", "budget"
_FLAVOURS = re.compile("|".join(get_args(Flavour)))
_MPI = "mpi flavour"

Value = str | int
#: Texts, or sizes in bytes, by name; a sentence if they are not known.
Section = Mapping[str, Value] | str


@dataclass(frozen=True)
class ComparedImage:
    title: str
    pins: Section
    gpus: Section = "is not of the matrix"
    packages: Section = "has no list of them where it is"
    size: Section = "is not built here"
    suites: Section = "is not built here"


def differing(first: Section, second: Section) -> dict[str, tuple[Value | None, Value | None]]:
    """Return the values of both, by name, where they differ; nothing where one is not known."""
    if isinstance(first, str) or isinstance(second, str):
        return {}
    names = [*first, *(name for name in second if name not in first)]
    pairs = {name: (first.get(name), second.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


class ImageFinder:
    """Finds images by what `imgbuild diff` is given; ``repository`` has the releases."""

    def __init__(self, project: Project, repository: str | None, log: Log) -> None:
        self.project = project
        self.settings, self.suites = project.settings, read_suites(project.suites)
        self.matrix = load_matrix(project.matrix)
        self.log = log
        self.connect = partial(connect, settings=self.settings, log=log)
        self.repository = repository

    def find(self, text: str) -> ComparedImage:
        """Return what is known of an image.

        InputError: there is none. MachineError: engine or registry does not answer.
        """
        name, _, release = text.rpartition("@")
        if name and (release == PUBLISHED or RELEASE.fullmatch(release)):
            return self._released(find_image(self.matrix, name).name, release)
        if {":", "/"} & {*text}:
            return self._referred(text)
        return self._of_matrix(find_image(self.matrix, text))

    def _of_matrix(self, image: Image) -> ComparedImage:
        built = None
        if not self.settings.standin:  # what is built from stand-ins is no image of the matrix
            built = built_images(self.project, (image,), self.suites, self.log)
        known = (built or {}).get(image.name, ComparedImage.size)
        size: Section = {BUDGET: image.budget} if image.budget else str(known)
        if isinstance(known, KnownImage):
            size = {UNPACKED: known.size}
        return ComparedImage(
            image.name,
            {**{pin.component: pin.version for pin in image.pins}, _MPI: image.mpi.flavour},
            _gpus(image),
            locked_packages(image, self.project.locks),
            size,
            _verdicts(known) if isinstance(known, KnownImage) else str(known),
        )

    def _released(self, name: str, release: str) -> ComparedImage:
        with closing(self.connect(self.repository, option="--from")) as registry:
            records = [one for one in read_published(registry).whole if one.image == name]
            for record in reversed(records):
                if release in {PUBLISHED, record.release}:
                    return self._recorded(record, registry)
        there = ", ".join(one.release for one in records[-5:]) or "none"
        raise InputError(
            f"{registry.name} has no release {release} of {name}. The latest there: {there}; "
            "`imgbuild published` lists them all."
        )

    def _recorded(self, record: Record, registry: RegistryClient) -> ComparedImage:
        known = published_image(record, registry, self.suites)
        flavour = _FLAVOURS.search(record.tag)
        pins = {**record.pins, **({_MPI: flavour[0]} if flavour else {})}
        title, size = f"{record.image}@{record.release}", {PACKED: record.size}
        packages = record.packages or ComparedImage.packages
        return ComparedImage(title, pins, packages=packages, size=size, suites=_verdicts(known))

    def _referred(self, reference: str) -> ComparedImage:
        """Return an image of the engine; one that it lacks is looked for in its registry."""
        stored = None
        with open_engine(self.settings.engine) as engine:
            try:
                stored = engine.inspect(reference)
            except MachineError as error:
                self.log(f"note: {error}")
            if stored is None and parse_known_name(reference):
                image = find_image(self.matrix, reference)
                self.log(f"{reference}: using {image.name}, with TensorFlow {image.tensorflow}.")
                return self._of_matrix(image)
            if stored is None:
                return self._of_registry(reference)
            with image_locks([folder_name(reference)], engine.host, state_dir() / "locks"):
                contents = read_contents(reference, stored.id, engine)
            size = {UNPACKED: measure(reference, stored.id, engine).size}
        report = ReportStore(state_dir() / "reports").document(stored.id)
        suites = _verdicts(KnownImage(suite_lines(self.suites, report), ()))
        seen = {"tensorflow": contents.tensorflow, "python": contents.python}
        seen |= {"mpi": contents.mpi[1], "os": contents.os[1], _MPI: contents.mpi[0]}
        pins, packages = _labelled(stored.labels) or seen, contents.packages
        return ComparedImage(reference, pins, packages=packages, size=size, suites=suites)

    def _of_registry(self, reference: str) -> ComparedImage:
        """Return an image of a registry: by its record, else by its labels."""
        repository, tag, digest = split_reference(reference)
        what = f"{reference} is not in the engine, and as one of a registry"
        with closing(self.connect(repository, option=what)) as registry:
            manifest = registry.manifest(digest or tag or "latest")
            if manifest is None:
                raise InputError(f"Neither the engine nor the registry has an image {reference}.")
            for record in read_published(registry).whole:
                if record.digest == manifest.digest:
                    return self._recorded(record, registry)
            document = json_object(registry.blob(manifest.config_digest), f"The image {reference}")
        config = document.get("config")
        labels = config.get("Labels") if isinstance(config, Mapping) else None
        pins = _labelled(labels if isinstance(labels, Mapping) else {})
        size = {PACKED: sum(manifest.sizes())}
        return ComparedImage(reference, pins, size=size, suites="has no record")


def _gpus(image: Image) -> Section:
    """Return the driver and the compute capabilities that a GPU image serves."""
    if image.cuda is None:
        return {}
    support = gpu_support(image)
    served = {
        str(kind): ", ".join(one.capability for one, has in support if has is kind) or "none"
        for kind in (KernelSupport.NATIVE, KernelSupport.PTX)
    }
    return {"oldest driver": image.cuda.driver, **served}


def _verdicts(known: KnownImage) -> dict[str, Value]:
    return {one.suite.name: one.verdict for one in known.suites if one.verdict and one.current}


def _labelled(labels: Mapping[str, str]) -> dict[str, Value]:
    """Return the pins that the labels of an image say; none of an image of others."""
    pins = {name.removeprefix(PIN): v for name, v in labels.items() if name.startswith(PIN)}
    return {**pins, _MPI: labels[MPI_FLAVOUR]} if pins and MPI_FLAVOUR in labels else {**pins}
