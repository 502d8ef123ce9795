"""``imgbuild matrix``: list the images that CI has to build, as CI jobs."""

from typing import Literal

from imgbuild.cli import options
from imgbuild.cli.options import echo, flag, info, option, print_json, select, takes_selection
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.matrix.selection import Selection

Format = Literal["json", "github", "gitlab"]


@takes_selection()
def matrix(
    selection: Selection,
    form: Format = option(
        "--format",
        "Output format. json: all facts about each image; github: one line for fromJSON; gitlab: "
        "jobs of a child pipeline.",
        default="json",
    ),
    missing: bool = flag(
        "--missing",
        "Only images that are not published with their present input digest. Their base images "
        "must already be made.",
    ),
    outdated: bool = flag(
        "--outdated",
        "Like --missing, plus images whose latest release lacks security fixes of its system. "
        "Requires an engine.",
    ),
    source: str | None = options.repository("--from", "Repository for --missing and --outdated."),
    make_bases: bool = flag("--make-bases", "Make missing base images that no registry provides."),
    without_gpu: bool = flag("--without-gpu", "Omit GPU images, for runners without a GPU."),
    platform: str | None = option(
        "--platform PLATFORM",
        "linux/amd64, linux/arm64, or all. Each job has images for one platform. Default: "
        "linux/amd64.",
    ),
    shards: int | None = option(
        "--shards COUNT",
        "Divide the images among this many jobs, instead of one job per image.",
        min=1,
        max=1000,
    ),
    shard: str | None = option(
        "--shard NUMBER/COUNT", "Only the images of one shard, for example 1/4."
    ),
    checkout: Project = options.PROJECT,
) -> None:
    """List the images that CI has to build.

    By default, the command lists all images. --missing and --outdated shorten the list. An engine
    is required for --outdated, and for --make-bases if the settings do not name the base image.

    Example: imgbuild matrix --missing --format github
    """
    from imgbuild.maintain import jobs

    if shard is not None and shards:
        raise InputError("Use either --shard (list one shard) or --shards (list all shards).")
    missing = missing or outdated
    if source is not None and not missing:
        raise InputError("--from requires --missing or --outdated.")
    part = None if shard is None else jobs.parse_shard(shard)
    images = select(checkout, selection.or_everything)
    if without_gpu:
        images = tuple(image for image in images if image.variant != "gpu")
    if not images:
        raise InputError("--without-gpu leaves no image, because only GPU images are selected.")
    if platform:
        everything = selection.or_everything.everything
        images = options.for_platform(images, platform, checkout.settings, everything=everything)
    job_options = jobs.JobOptions(
        missing=missing,
        outdated=outdated,
        repository=source,
        shard=part,
        shards=shards,
        make_bases=make_bases,
    )
    listed, ci_jobs = jobs.select_jobs(checkout, images, job_options, info)
    if form == "github":
        echo(jobs.github_text(ci_jobs))
    elif form == "gitlab":
        echo(jobs.gitlab_text(ci_jobs))
    else:
        print_json(listed)
