"""``imgbuild build``: build what is missing, test it, and name what passed."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.selecting import Chosen, selecting
from imgbuild.cli.telling import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from imgbuild.caches.protocol import BuildCache
    from imgbuild.engine.client import Engine
    from imgbuild.matrix.images import Image
    from imgbuild.project import Project


class LogFormat(StrEnum):
    """What standard error is for: people or programs."""

    TEXT = "text"
    JSON = "json"


@selecting
def build(
    chosen: Chosen,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be built and why; do nothing.")
    ] = False,
    no_test: Annotated[
        bool, typer.Option("--no-test", help="Name the image without running its suites.")
    ] = False,
    keep_going: Annotated[
        bool | None,
        typer.Option(
            "--keep-going/--fail-fast",
            help="After a failure, go on with the other images, or not; with --all it goes on.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=64, help="How many images to test at once.")
    ] = min(os.cpu_count() or 1, 4),
    refresh_base: Annotated[
        bool, typer.Option("--refresh-base", help="Make base images again, with new updates.")
    ] = False,
    offline: Annotated[
        Path | None,
        typer.Option(
            "--offline",
            metavar="DEST",
            help="Take every input from a folder that `imgbuild fetch` filled; no network.",
        ),
    ] = None,
    step_timeout: Annotated[
        str | None,
        typer.Option(
            "--step-timeout",
            metavar="DURATION",
            help="How long a step may run: 90s, 30m, 1h, 0 for no limit. Default: 1h.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            envvar="IMGBUILD_LOG_FORMAT",
            help="What standard error is: text, or one JSON object a line (docs/reference.md).",
        ),
    ] = LogFormat.TEXT,
    seed: Annotated[
        Path | None,
        typer.Option(
            "--seed",
            metavar="DEST",
            help="Take what `imgbuild fetch` put into a folder from there, the rest from the "
            "network.",
        ),
    ] = None,
    cache_from: Annotated[
        list[str] | None,
        typer.Option(
            "--cache-from",
            metavar="SRC",
            help="Take finished images from a folder or HOST[:PORT]/REPOSITORY; repeatable.",
        ),
    ] = None,
    cache_to: Annotated[
        list[str] | None,
        typer.Option(
            "--cache-to",
            metavar="DEST",
            help="Keep images that passed in a folder or HOST[:PORT]/REPOSITORY; repeatable.",
        ),
    ] = None,
    pull: Annotated[
        bool,
        typer.Option(
            "--pull",
            help="Take images that are published with the same inputs from there (`imgbuild "
            "published`), instead of building them.",
        ),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HOST[:PORT]/REPOSITORY",
            help="Where --pull looks. Default: publishing.repository of imgbuild.local.yaml.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Folder for report.json and junit.xml, one folder an image."),
    ] = None,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Build what is missing, run the suites, and name the images that passed.

    --as-documented builds the documented pins knowingly: it says first which compatibility rules
    they break. Suites that find the fault fail, and then the image gets no name; with --no-test it
    does.
    """
    from imgbuild.build.opening import Opening
    from imgbuild.build.options import BuildOptions
    from imgbuild.caches.place import cache_place
    from imgbuild.cli.build_conflicts import Given, require_consistent
    from imgbuild.cli.build_run import build_images, show_plan

    del log_format  # whoever starts the program has asked for it before (imgbuild.json_log)
    require_consistent(
        Given(
            plan=plan,
            refresh_base=refresh_base,
            offline=offline,
            seed=seed,
            pull=pull,
            source=source,
        )
    )
    opened = options.open_project(project)
    images = chosen.images(opened)
    for image in images:
        _warn(image)
    goes_on = chosen.everything if keep_going is None else keep_going
    how = BuildOptions(test=not no_test, keep_going=goes_on, jobs=jobs)
    opening = Opening(
        say,
        report.absolute() if report else None,
        make=not plan,
        refresh=refresh_base,
        offline=offline.absolute() if offline else None,
        step_seconds=options.seconds(step_timeout, "--step-timeout"),
        seed=seed.absolute() if seed else None,
        sources=tuple(cache_place("--cache-from", value) for value in cache_from or ()),
        targets=tuple(cache_place("--cache-to", value) for value in cache_to or ()),
        published=_published(opened, source) if pull else None,
    )
    (show_plan if plan else build_images)(opened, images, how, opening, as_json=as_json)


def _published(
    project: "Project", source: str | None
) -> "Callable[[Engine, Callable[[str], None]], BuildCache]":
    """Return what opens the published images; nothing is asked yet."""
    from imgbuild.publishing.pulled import PublishedImages
    from imgbuild.registry.client import connect
    from imgbuild.registry.repository import select_repository
    from imgbuild.settings import load_settings

    settings = load_settings(project.settings)
    repository, option = select_repository(source, settings, "--from")
    registry = connect(repository, settings, say, option=option)
    return lambda engine, say: PublishedImages(registry, engine, say)


def _warn(image: "Image") -> None:
    from imgbuild.matrix.rules import documented_warnings

    for paragraph in documented_warnings(image) if image.documented else ():
        say(paragraph)
