"""Select the images that CI has to build, and deal them out to jobs."""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from imgbuild.ci.changed import CheckoutDigests, changes_between, look_at_inputs, this_checkout
from imgbuild.errors import InputError
from imgbuild.matrix.images import Image, whole_family
from imgbuild.matrix.tags import input_tag
from imgbuild.project import Project
from imgbuild.settings import Settings, load_settings

SELECTED = "selected"
NOT_PUBLISHED = "not published with these inputs"
#: More shards than any CI system starts at once are a typing error.
MOST_SHARDS = 1000


@dataclass(frozen=True)
class JobOptions:
    """The options of ``imgbuild matrix`` beside the selection.

    ``shard`` is a number and a count, ``shards`` a count alone; ``None`` for neither.
    """

    changed_since: str | None = None
    missing: bool = False
    repository: str | None = None
    shard: tuple[int, int] | None = None
    shards: int | None = None


@dataclass(frozen=True)
class ListedImage:
    """One image, why it is listed, and the digest that a build here will find.

    ``digest`` is None where the image's base is to be bootstrapped, without ``--missing``.
    """

    image: Image
    digest: str | None
    reason: str
    shard: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what ``--format json`` prints."""
        found = {
            "name": self.image.name,
            "tensorflow": self.image.tensorflow,
            "variant": self.image.variant,
            "stack": self.image.stack,
            "mpi": self.image.mpi_name,
            "input_digest": self.digest,
            "reason": self.reason,
        }
        return found if self.shard is None else {**found, "shard": self.shard}


@dataclass(frozen=True)
class Job:
    """One job of CI and its images; ``label`` is the image's name, or ``1/4`` of a shard."""

    label: str
    images: tuple[Image, ...]
    sharded: bool

    @property
    def names(self) -> str:
        """The images' names, with blanks between them."""
        return " ".join(image.name for image in self.images)

    @property
    def options(self) -> str:
        """The options of ``imgbuild build``, ``test`` and ``push`` for exactly these images."""
        return " ".join(f"--name {image.name}" for image in self.images)

    @property
    def has_gpu(self) -> bool:
        """Whether one of the images is of the gpu variant, whose suites need a GPU."""
        return any(image.variant == "gpu" for image in self.images)


@dataclass(frozen=True)
class JobList:
    """The images that CI has to build, and the jobs that build them."""

    listed: tuple[ListedImage, ...]
    jobs: tuple[Job, ...]


def select_jobs(
    project: Project, images: tuple[Image, ...], options: JobOptions, log: Callable[[str], None]
) -> JobList:
    """Return the images that the options leave, compared with git and the registry.

    Each option narrows the list: ``--changed-since`` and ``--missing`` together list the images
    that changed and are not published as they are now.

    Raises:
        InputError: a Dockerfile or lock is not the current one, a revision does not exist, no
            repository is named.
        MachineError: there is no git, or the registry does not answer.

    """
    settings = load_settings(project.settings)
    # The registry is asked first: a base image is made only where there is something to compare.
    published = _published(options.repository, settings, log) if options.missing else ()
    inputs = look_at_inputs(project, images, settings, log if options.missing else None)
    now = this_checkout(project, images, inputs)
    reasons = _changed(now, options, project, settings, log)
    if options.missing:
        reasons = {
            name: NOT_PUBLISHED if reason == SELECTED else f"{reason}; {NOT_PUBLISHED}"
            for name, reason in reasons.items()
            if input_tag(now.digests[name].total) not in published
        }
    chosen = [image for image in images if image.name in reasons]
    jobs = _jobs(chosen, options)
    shard_of = {image.name: job.label for job in jobs if job.sharded for image in job.images}
    listed = [
        ListedImage(image, now.exact(image.name), reasons[image.name], shard_of.get(image.name))
        for job in (jobs if options.shard else [Job("", tuple(chosen), sharded=False)])
        for image in job.images
    ]
    if options.shard:  # a job an image, as every list without --shards
        jobs = [Job(image.name, (image,), sharded=False) for job in jobs for image in job.images]
    return JobList(tuple(listed), tuple(jobs))


def _changed(
    now: CheckoutDigests,
    options: JobOptions,
    project: Project,
    settings: Settings,
    log: Callable[[str], None],
) -> Mapping[str, str]:
    """Return why images are listed, as far as git can tell; every image without a revision."""
    if options.changed_since is None:
        return dict.fromkeys(now.images, SELECTED)
    family = whole_family(next(iter(now.images.values())).matrix)
    changes = changes_between(now, family, options.changed_since, project, settings)
    for line in (*changes.notes, *(f"{name} is gone from the matrix" for name in changes.gone)):
        log(line)
    return changes.reasons


def _published(
    repository: str | None, settings: Settings, log: Callable[[str], None]
) -> Container[str]:
    """Return the input tags of the repository of ``--from`` or of the settings.

    Raises:
        InputError: no repository is named.
        MachineError: the registry does not answer.
        CheckFailedError: it refuses.

    """
    from imgbuild.publish.record import published_inputs  # noqa: PLC0415 - brings requests
    from imgbuild.registry.repository_client import connect  # noqa: PLC0415

    with closing(connect(repository, settings, log, "--from")) as registry:
        return published_inputs(registry)


def _jobs(images: Sequence[Image], options: JobOptions) -> list[Job]:
    """Return a job an image, or a job a shard; with ``--shard`` that shard alone."""
    count = options.shard[1] if options.shard else options.shards
    if count is None:
        return [Job(image.name, (image,), sharded=False) for image in images]
    jobs = [
        Job(f"{number}/{count}", shard, sharded=True)
        for number, shard in enumerate(shards(images, count), 1)
    ]
    return jobs[options.shard[0] - 1 : options.shard[0]] if options.shard else jobs


def shards(images: Iterable[Image], count: int) -> list[tuple[Image, ...]]:
    """Return at most ``count`` shards, none of them empty: each image is in exactly one.

    Images of one stack, Python and TensorFlow have most stages in common and stay together, unless
    there are more shards than such families. The order of the images is kept in each shard.
    """
    order = {image.name: image for image in images}
    families: dict[tuple[str, ...], list[str]] = {}
    for name, image in order.items():
        family = (image.stack, image.version_of("python"), image.tensorflow)
        families.setdefault(family, []).append(name)
    groups = [*families.values()]
    while len(groups) < min(count, len(order)):
        largest = max(groups, key=len)
        half = (len(largest) + 1) // 2
        groups += [largest[half:]]
        del largest[half:]
    dealt: list[list[str]] = [[] for _ in range(min(count, len(groups)))]
    for group in sorted(groups, key=len, reverse=True):
        min(dealt, key=len).extend(group)
    place = [*order].index
    ordered = sorted((sorted(names, key=place) for names in dealt), key=lambda one: place(one[0]))
    return [tuple(order[name] for name in names) for names in ordered]


def parse_shard(text: str) -> tuple[int, int]:
    """Return number and count of ``1/4``.

    Raises:
        InputError: it is no such pair, or the number is greater than the count.

    """
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text, re.ASCII)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count <= MOST_SHARDS:
        raise InputError(
            f"--shard {text!r}: give NUMBER/COUNT, the number from 1 to the count and the count at "
            f"most {MOST_SHARDS}, such as 1/4."
        )
    return number, count
