"""``imgbuild build``: build what is missing, test it, and name what passed."""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.selecting import Chosen, selecting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imgbuild.building.opening import Opening
    from imgbuild.building.options import BuildOptions
    from imgbuild.building.outcome import Outcome
    from imgbuild.building.workshop import Workshop
    from imgbuild.caches.protocol import BuildCache
    from imgbuild.engine.protocol import Engine
    from imgbuild.errors import ImgbuildError
    from imgbuild.matrix.image import Image
    from imgbuild.plan.plan import PlanItem
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
            help="What standard error is: text, or one JSON object a line (docs/logging.md).",
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
    from imgbuild.building.opening import Opening
    from imgbuild.building.options import BuildOptions
    from imgbuild.caches.place import cache_place
    from imgbuild.errors import InputError

    del log_format  # whoever starts the program has asked for it before (imgbuild.json_log)
    if plan and refresh_base:
        raise InputError("--plan makes nothing, and --refresh-base makes base images; choose one.")
    if offline and not offline.is_dir():
        raise InputError(
            f"--offline {offline}: there is no such folder; `imgbuild fetch` makes one."
        )
    if offline and refresh_base:
        raise InputError("--offline takes the base image that was fetched; drop --refresh-base.")
    if seed and offline:
        raise InputError(
            "--seed asks the network for what is missing, --offline never; choose one."
        )
    if seed and not seed.is_dir():
        raise InputError(f"--seed {seed}: there is no such folder; `imgbuild fetch` makes one.")
    if source is not None and not pull:
        raise InputError("--from says where --pull looks: give both, or neither.")
    opened = options.open_project(project)
    images = chosen.images(opened)
    for image in images:
        _warn(image)
    goes_on = chosen.everything if keep_going is None else keep_going
    how = BuildOptions(test=not no_test, keep_going=goes_on, jobs=jobs)
    opening = Opening(
        _say,
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
    (_plan if plan else _build)(opened, images, how, opening, as_json=as_json)


def _published(
    project: "Project", source: str | None
) -> "Callable[[Engine, Callable[[str], None]], BuildCache]":
    """Return what opens the published images; nothing is asked yet."""
    from imgbuild.publishing.pulled import PublishedImages
    from imgbuild.registry.opening import chosen_repository, open_registry
    from imgbuild.settings import load_settings

    settings = load_settings(project.settings)
    repository, option = chosen_repository(source, settings, "--from")
    registry = open_registry(repository, settings, _say, option=option)
    return lambda engine, say: PublishedImages(registry, engine, say)


def _plan(
    project: "Project",
    images: "tuple[Image, ...]",
    how: "BuildOptions",
    opening: "Opening",
    *,
    as_json: bool,
) -> None:
    from imgbuild.building.opening import open_planner
    from imgbuild.cli.plan_table import plan_lines

    with open_planner(project, images, opening) as opened:
        items = opened.plan(test=how.test)
        if opened.caches:
            from imgbuild.building.cached import foreseen

            items = foreseen(items, opened.caches)
    if as_json:
        typer.echo(json.dumps([item.as_json() for item in items], indent=2))
    else:
        typer.echo(plan_lines(items))


def _build(
    project: "Project",
    images: "tuple[Image, ...]",
    how: "BuildOptions",
    opening: "Opening",
    *,
    as_json: bool,
) -> None:
    from imgbuild.building.opening import equip, open_planner
    from imgbuild.suites.docker_client import require_docker_client

    if how.test:
        require_docker_client()
    with open_planner(project, images, opening) as opened:
        items = opened.plan(test=how.test)
        if opening.targets or any(item.busy for item in items):
            _locked(equip(opened), images, how, as_json=as_json)
            return
    _idle(items, opened.host, as_json=as_json)


def _idle(items: "tuple[PlanItem, ...]", host: str | None, *, as_json: bool) -> None:
    """Say that there is nothing to do, without importing what would do it."""
    from imgbuild.cli.plan_table import idle_line, usage_lines

    if as_json:
        from imgbuild.building.outcome import Outcome

        done = [Outcome(item, item.image_id, named=True) for item in items]
        typer.echo(json.dumps([outcome.as_json() for outcome in done], indent=2))
    else:
        typer.echo(f"{idle_line(items)}\n{usage_lines(items[0].image, host)}")


def _locked(
    workshop: "Workshop", images: "tuple[Image, ...]", how: "BuildOptions", *, as_json: bool
) -> None:
    """Build under the images' locks; planned again there, since another imgbuild may be done."""
    from imgbuild.building.image_lock import image_locks
    from imgbuild.project import state_dir

    names = [image.name for image in images]
    with image_locks(names, workshop.host, state_dir() / "locks"):
        _run(workshop, images, how, as_json=as_json)


def _run(
    workshop: "Workshop",
    images: "tuple[Image, ...]",
    how: "BuildOptions",
    *,
    as_json: bool,
) -> None:
    from imgbuild.building.cached import keep, restored
    from imgbuild.building.gate import remove_leftovers
    from imgbuild.building.room import require_room
    from imgbuild.cli.build_tables import outcome_lines
    from imgbuild.cli.plan_table import usage_lines

    remove_leftovers(images, workshop)
    items = restored(images, workshop, test=how.test)
    require_room(items, workshop)
    workshop.display.expect({item.image.name: str(item.action) for item in items}, tests=how.test)
    outcomes, stop = _outcomes(items, workshop, how)
    keep(outcomes, workshop)
    if as_json:
        typer.echo(json.dumps([outcome.as_json() for outcome in outcomes], indent=2))
    else:
        typer.echo(outcome_lines(outcomes, len(items), stopped=stop is not None))
    _raise_failures(outcomes, stop, workshop)
    if not as_json:
        typer.echo(usage_lines(outcomes[0].item.image, workshop.host))


def _outcomes(
    items: "tuple[PlanItem, ...]", workshop: "Workshop", how: "BuildOptions"
) -> "tuple[list[Outcome], ImgbuildError | OSError | None]":
    """Return what became of the images, in their order, and what stopped the build, if anything."""
    from imgbuild.building.cached import releasing
    from imgbuild.building.produce import produce
    from imgbuild.cli.outcome_shown import shown
    from imgbuild.errors import ImgbuildError

    outcomes: list[Outcome] = []
    stop = None
    with releasing(items, workshop.caches), workshop.display:
        try:
            for outcome in produce(items, workshop, how):
                outcomes.append(shown(outcome, workshop.display))  # noqa: PERF401 - kept if it stops
        except (ImgbuildError, OSError) as error:
            stop = error
    order = [item.image.name for item in items]
    outcomes.sort(key=lambda outcome: order.index(outcome.item.image.name))
    return outcomes, stop


def _raise_failures(
    outcomes: "Sequence[Outcome]", stop: "ImgbuildError | OSError | None", workshop: "Workshop"
) -> None:
    """Raise if an image has no name, or the build was stopped.

    Raises:
        MachineError: this machine is to blame for all of it, or its disk is full.
        CheckFailedError: an image is to blame.

    """
    from imgbuild.building.blame import Blame
    from imgbuild.building.room import scarce_room
    from imgbuild.cli.build_tables import failure_lines
    from imgbuild.errors import CheckFailedError, MachineError

    failed = [outcome for outcome in outcomes if not outcome.ok]
    if not failed:
        if stop:
            raise stop
        return
    full = scarce_room(workshop)
    reasons = [*failure_lines(failed), str(stop or ""), full]
    said = "\n".join(reason for reason in reasons if reason)
    of_machine = full or stop or all(one.blame is not Blame.IMAGE for one in failed)
    raise MachineError(said) if of_machine else CheckFailedError(said)


def _warn(image: "Image") -> None:
    from imgbuild.rules.warnings import documented_warnings

    for paragraph in documented_warnings(image) if image.documented else ():
        _say(paragraph)


def _say(text: str) -> None:
    typer.echo(text, err=True)
