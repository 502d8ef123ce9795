"""Select the images that CI has to build, divide them into jobs, and print the jobs."""

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from imgbuild.build.bases import make_bases
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.engine.client import open_engine
from imgbuild.engine.types import AMD64
from imgbuild.inputs.base import require_made
from imgbuild.inputs.build_inputs import (
    BuildInputs,
    check_names,
    check_settings,
    prepare_inputs,
)
from imgbuild.matrix.images import Image, for_other_architecture
from imgbuild.matrix.tags import input_tag
from imgbuild.plan.digest import InputReader, input_digest
from imgbuild.plan.division import divide, estimate_works

SELECTED = "selected"
NOT_PUBLISHED = "not published with these inputs"
#: Maximum number of shards, to catch typing errors: no CI system starts more jobs in parallel.
MOST_SHARDS = 1000
#: Maximum number of jobs in a matrix. Source: docs.github.com, "Running variations of jobs in a
#: workflow" and "Actions limits".
GITHUB_JOBS = 256
#: The hidden job that the author of the pipeline writes. The jobs of the child pipeline extend it.
GITLAB_TEMPLATE = ".imgbuild"
#: The only job of an empty pipeline, because GitLab rejects a pipeline without jobs.
GITLAB_NOTHING = {"nothing to build": {"extends": GITLAB_TEMPLATE, "script": ["true"]}}


@dataclass(frozen=True)
class JobOptions:
    """The options of ``imgbuild matrix``, except the selection of images.

    ``outdated`` requires ``missing``. ``shard`` is a number and a count, ``shards`` is only a
    count; at most one of them is set.
    """

    missing: bool = False
    outdated: bool = False
    repository: str | None = None
    shard: tuple[int, int] | None = None
    shards: int | None = None
    make_bases: bool = False


@dataclass(frozen=True)
class Job:
    """One CI job: a shard, for example ``1/4``, or a single image.

    All images of a job have one platform.
    """

    images: tuple[Image, ...]
    shard: str | None = None

    @property
    def names(self) -> str:
        """The images as words of ``imgbuild build``, ``test`` and ``push``."""
        return " ".join(image.name for image in self.images)

    @property
    def platform(self) -> str:
        """The platform of the machine that the job needs, for example ``linux/arm64``."""
        return self.images[0].platform

    @property
    def has_gpu(self) -> bool:
        """Whether one of the images has the gpu variant, whose suites need a GPU."""
        return any(image.variant == "gpu" for image in self.images)


def select_jobs(
    project: Project, images: tuple[Image, ...], options: JobOptions, log: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[Job]]:
    """Return the facts of each image that CI has to build, and the jobs that build them.

    The facts include the reason, and the input digest of a build on this machine. The digest is
    None if the image's base is not made yet. ``--outdated`` selects the images of ``--missing``,
    and images whose latest release lacks security fixes of its system.

    InputError: a Dockerfile or lock is out of date, or there is no repository.
    MachineError: the registry does not answer.
    CheckFailedError: the registry denies access.
    """
    settings = project.settings
    check_names(settings, images[0].matrix)
    published: Container[str] = ()
    earlier: Mapping[str, float] = {}
    if options.missing:
        # Query the registry first, so that an error ends the command before a base image is made.
        published, earlier = _ask_registry(project, options, log)
    if options.make_bases:
        check_settings(settings, images[0].matrix)
        with open_engine(settings.engine) as engine:
            settings = make_bases(images, settings, engine, log)
    outdated = _find_outdated(project, images, options, log)
    inputs = prepare_inputs(images, settings, project)
    if options.missing:
        _require_bases(images, inputs)
    digests = _digests(images, project, inputs)
    reasons = dict.fromkeys(digests, SELECTED)
    if options.missing:
        reasons = _reasons_to_build(digests, published, outdated)
        reasons |= _reasons_of_others(images, reasons)
    candidates = [image for image in images if image.name in reasons]
    jobs = _deal_out(candidates, project, options, earlier)
    shard_of: dict[str, str | None] = {}
    for job in jobs:
        for image in job.images:
            shard_of[image.name] = job.shard
    built = [image for image in images if image.name in shard_of]
    listed = []
    for image in built:
        facts: dict[str, Any] = {**_facts(image)}
        facts["input_digest"] = digests[image.name]
        facts["reason"] = reasons[image.name]
        if shard := shard_of[image.name]:
            facts["shard"] = shard
        listed.append(facts)
    if options.shard:  # one job per image, like all lists without --shards
        jobs = [Job((image,)) for image in built]
    return listed, jobs


def _ask_registry(
    project: Project, options: JobOptions, log: Callable[[str], None]
) -> tuple[Container[str], Mapping[str, float]]:
    """Return the published input tags, and the seconds of earlier builds."""
    from imgbuild.net.repository_client import connect  # noqa: PLC0415
    from imgbuild.publish.record import (  # noqa: PLC0415 - brings requests
        read_build_seconds,
        read_input_tags,
    )

    earlier: Mapping[str, float] = {}
    with closing(connect(options.repository, project.settings, log, "--from")) as registry:
        published = read_input_tags(registry)
        if options.shards:
            # Not with --shard: each job divides the images itself, and later jobs would see other
            # times.
            earlier = read_build_seconds(registry)
    return published, earlier


def _find_outdated(
    project: Project, images: tuple[Image, ...], options: JobOptions, log: Callable[[str], None]
) -> Mapping[str, str]:
    """Return the reason for each image whose latest release lacks security fixes."""
    if not options.outdated:
        return {}
    from imgbuild.maintain.outdated import outdated_images  # noqa: PLC0415 - brings requests
    from imgbuild.net.repository_client import connect  # noqa: PLC0415

    with closing(connect(options.repository, project.settings, log, "--from")) as registry:
        return outdated_images(project, images, registry, log)


def _require_bases(images: Sequence[Image], inputs: BuildInputs) -> None:
    for image in images:
        require_made(inputs.bases[image.base_name], image)


def _reasons_to_build(
    digests: Mapping[str, str | None], published: Container[str], outdated: Mapping[str, str]
) -> dict[str, str]:
    reasons = {}
    for name, digest in digests.items():
        if name in outdated:
            reasons[name] = outdated[name]
        elif digest is None or input_tag(digest) not in published:
            reasons[name] = NOT_PUBLISHED
    return reasons


def _reasons_of_others(images: Sequence[Image], reasons: Mapping[str, str]) -> dict[str, str]:
    """Return reasons for images whose image for the other platform has to be built.

    Both are published in one release: otherwise, the release has no index.
    """
    others: dict[str, str] = {}
    for image in images:
        other = for_other_architecture(image)
        if other and other.name in reasons and image.name not in reasons:
            others[image.name] = f"in one release with {other.name}, which has to be built"
    return others


def _digests(
    images: Sequence[Image], project: Project, inputs: BuildInputs
) -> dict[str, str | None]:
    """Return the input digest of each image, by name; None if its base is not made yet.

    InputError: a Dockerfile or lock is missing or out of date.
    """
    reader = InputReader(project)
    digests: dict[str, str | None] = {}
    for image in images:
        digest = input_digest(image, inputs, reader)
        is_made = inputs.bases[image.base_name].digest is not None
        digests[image.name] = digest.total if is_made else None
    return digests


def _deal_out(
    images: Sequence[Image], project: Project, options: JobOptions, earlier: Mapping[str, float]
) -> list[Job]:
    """Return one job per image or per shard; with ``--shard``, only that shard.

    The images of each platform are divided into that many shards.
    """
    number, count = options.shard or (None, options.shards)
    if count is None:
        return [Job((image,)) for image in images]
    jobs = []
    for platform in dict.fromkeys(image.platform for image in images):
        own = [image for image in images if image.platform == platform]
        shards = divide_images(own, project, count, earlier)
        for index, shard in enumerate(shards, 1):
            if number in {None, index}:
                jobs.append(Job(shard, f"{index}/{count}"))
    return jobs


def divide_images(
    images: Sequence[Image], project: Project, count: int, earlier: Mapping[str, float]
) -> list[tuple[Image, ...]]:
    """Return at most ``count`` shards, without empty ones, in the order of their first images.

    ``earlier`` has the seconds of earlier builds by name. Each shard keeps the order of the images.
    """
    order = {image.name: number for number, image in enumerate(images)}
    shards = []
    works = estimate_works(images, project, earlier)
    for part in divide(works, count):
        if part:
            numbers = sorted(order[work.name] for work in part)
            shard = tuple(images[number] for number in numbers)
            shards.append(shard)
    return sorted(shards, key=lambda shard: order[shard[0].name])


def parse_shard(text: str) -> tuple[int, int]:
    """Parse a shard like ``1/4`` into number and count.

    InputError: the text has another form, or the number is greater than the count.
    """
    number = count = 0
    if match := re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text, re.ASCII):
        number, count = map(int, match.groups())
    if not 1 <= number <= count <= MOST_SHARDS:
        raise InputError(
            f"--shard {text!r}: give NUMBER/COUNT, for example 1/4. The number is from 1 to the "
            f"count, and the count is at most {MOST_SHARDS}."
        )
    return number, count


def github_text(jobs: Sequence[Job]) -> str:
    """Return a job matrix for ``fromJSON`` on one line, as ``$GITHUB_OUTPUT`` requires.

    InputError: there are more jobs than GitHub allows.
    """
    if len(jobs) > GITHUB_JOBS:
        raise InputError(
            f"There are {len(jobs)} jobs, but a matrix of GitHub Actions has at most "
            f'{GITHUB_JOBS} (docs.github.com, "Actions limits"). Put several images into a job '
            "with --shards N, or select fewer images."
        )
    entries = []
    for job in jobs:
        entry: dict[str, object] = {**_facts(job.images[0])}
        if job.shard:
            entry = {"shard": job.shard}
        entry["images"] = job.names
        entry["names"] = job.names
        entry["gpu"] = job.has_gpu
        entry["platform"] = job.platform
        entries.append(entry)
    return json.dumps({"include": entries}, separators=(",", ":"))


def gitlab_text(jobs: Sequence[Job]) -> str:
    """Return a child pipeline in YAML, whose jobs extend the author's job ``.imgbuild``.

    It does not use ``parallel:matrix``, which allows only 200 jobs and adds the variables to a
    job's name, which may have 255 characters. Source: docs.gitlab.com, "CI/CD YAML syntax
    reference", ``parallel:matrix``; gitlab-org/gitlab issues 584573 and 438369.
    """
    import yaml  # noqa: PLC0415 - only this format needs it

    pipeline: dict[str, Any] = {}
    for job in jobs:
        # GitLab would group jobs with names like "images 1/4" as equal jobs.
        title = job.names
        if job.shard:
            title = f"shard {job.shard.replace('/', ' of ')}"
            if job.platform != AMD64:
                title += f" for {job.platform}"
        variables = {
            "IMGBUILD_IMAGES": job.names,
            "IMGBUILD_NAMES": job.names,
            "IMGBUILD_GPU": "true" if job.has_gpu else "false",
            "IMGBUILD_PLATFORM": job.platform,
        }
        pipeline[title] = {"extends": GITLAB_TEMPLATE, "variables": variables}
    text = yaml.safe_dump(pipeline or GITLAB_NOTHING, sort_keys=False, width=1_000_000)
    return str(text).rstrip("\n")


def _facts(image: Image) -> dict[str, str]:
    return {
        "name": image.name,
        "tensorflow": image.tensorflow,
        "variant": image.variant,
        "stack": image.stack,
        "mpi": image.mpi_name,
        "platform": image.platform,
    }
