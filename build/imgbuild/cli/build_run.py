"""What ``imgbuild build`` does with what it was told: show the plan, or build, tell and keep."""

import json
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgbuild.build.opening import Opening
    from imgbuild.build.options import BuildOptions
    from imgbuild.build.outcome import Outcome
    from imgbuild.build.workshop import Workshop
    from imgbuild.errors import ImgbuildError
    from imgbuild.matrix.images import Image
    from imgbuild.plan.plan import PlanItem
    from imgbuild.project import Project


def show_plan(
    project: "Project",
    images: "tuple[Image, ...]",
    how: "BuildOptions",
    opening: "Opening",
    *,
    as_json: bool,
) -> None:
    """Say what would be built and why."""
    from imgbuild.build.opening import open_planner
    from imgbuild.cli.plan_table import plan_lines

    with open_planner(project, images, opening) as opened:
        items = opened.plan(test=how.test)
        if opened.caches:
            from imgbuild.build.cached import foreseen

            items = foreseen(items, opened.caches)
    if as_json:
        typer.echo(json.dumps([item.as_json() for item in items], indent=2))
    else:
        typer.echo(plan_lines(items))


def build_images(
    project: "Project",
    images: "tuple[Image, ...]",
    how: "BuildOptions",
    opening: "Opening",
    *,
    as_json: bool,
) -> None:
    """Build what is missing, unless there is nothing to do, and say what was done.

    Raises:
        CheckFailedError: an image has no name now.
        MachineError: this machine cannot build.

    """
    from imgbuild.build.opening import equip, open_planner
    from imgbuild.suites.container import require_docker_client

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
        from imgbuild.build.outcome import Outcome

        done = [Outcome(item, item.image_id, named=True) for item in items]
        typer.echo(json.dumps([outcome.as_json() for outcome in done], indent=2))
    else:
        typer.echo(f"{idle_line(items)}\n{usage_lines(items[0].image, host)}")


def _locked(
    workshop: "Workshop", images: "tuple[Image, ...]", how: "BuildOptions", *, as_json: bool
) -> None:
    """Build under the images' locks; planned again there, since another imgbuild may be done."""
    from imgbuild.build.image_lock import image_locks
    from imgbuild.project import state_dir

    names = [image.name for image in images]
    with image_locks(names, workshop.host, state_dir() / "locks"):
        run(workshop, images, how, as_json=as_json)


def run(
    workshop: "Workshop",
    images: "tuple[Image, ...]",
    how: "BuildOptions",
    *,
    as_json: bool,
) -> None:
    """Build under locks that are held; tell and keep what was done, also if the build is stopped.

    Raises:
        CheckFailedError: an image has no name now.
        MachineError: this machine cannot build.

    """
    from imgbuild.build.cached import keep, restored
    from imgbuild.build.gate import remove_leftovers
    from imgbuild.build.room import require_room
    from imgbuild.cli.build_tables import outcome_lines
    from imgbuild.cli.plan_table import usage_lines
    from imgbuild.engine.progress import ImagesPlanned

    remove_leftovers(images, workshop)
    items = restored(images, workshop, test=how.test)
    require_room(items, workshop)
    actions = {item.image.name: str(item.action) for item in items}
    workshop.display.on_event(ImagesPlanned(actions))
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
    from imgbuild.build.cached import releasing
    from imgbuild.build.produce import produce
    from imgbuild.engine.progress import ImageState
    from imgbuild.errors import ImgbuildError

    outcomes: list[Outcome] = []
    stop = None
    with releasing(items, workshop.caches), workshop.display:
        try:
            for outcome in produce(items, workshop, how):
                outcomes.append(outcome)
                name = outcome.item.image.name
                workshop.display.on_event(ImageState(name, _state(outcome), error=outcome.error))
        except (ImgbuildError, OSError) as error:
            stop = error
    order = [item.image.name for item in items]
    outcomes.sort(key=lambda outcome: order.index(outcome.item.image.name))
    return outcomes, stop


def _state(outcome: "Outcome") -> str:
    from imgbuild.plan.plan import Action

    if outcome.ok:
        return "up to date" if outcome.item.action is Action.NOTHING else "named"
    cancelled = outcome.error is not None and outcome.error.startswith("cancelled")
    return "cancelled" if cancelled else "failed"


def _raise_failures(
    outcomes: "Sequence[Outcome]", stop: "ImgbuildError | OSError | None", workshop: "Workshop"
) -> None:
    """Raise if an image has no name, or the build was stopped.

    Raises:
        MachineError: this machine is to blame for all of it, or its disk is full.
        CheckFailedError: an image is to blame.

    """
    from imgbuild.build.blame import Blame
    from imgbuild.build.room import scarce_room
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
