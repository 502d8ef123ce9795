"""``imgbuild build``: plan, build, test, name. The one function behind the command."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from imgbuild.building.bake import Baked, bake_images
from imgbuild.building.gate import pass_gate
from imgbuild.building.outcome import Outcome
from imgbuild.building.supplies import Supplies, bring_downloads
from imgbuild.building.workshop import Workshop
from imgbuild.inputs.base import save_archive
from imgbuild.plan.inputs import BaseInput
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.work_folder import work_folder


@dataclass(frozen=True)
class BuildOptions:
    """How to build: with suites or without, past failures or not, how many images at once."""

    test: bool = True
    keep_going: bool = False
    jobs: int = 2


def produce(
    plan: Sequence[PlanItem], workshop: Workshop, options: BuildOptions
) -> Iterator[Outcome]:
    """Do what the plan says and yield what became of each image as soon as it is known.

    After a failure the images not yet begun are left out, unless ``keep_going``.
    """
    yield from (
        Outcome(item, item.image_id, named=True) for item in plan if item.action is Action.NOTHING
    )
    ready = [i for i in plan if i.action in {Action.TEST, Action.NAME}]
    for item in ready:
        outcome = pass_gate(item, item.image_id or "", workshop, test=options.test)
        yield outcome
        if not outcome.ok and not options.keep_going:
            return
    todo = [item for item in plan if item.action is Action.BUILD]
    if not todo:
        return
    supplies = bring_downloads(todo, workshop)
    load_bases({item.image.os_name for item in todo}, workshop)
    for start in range(0, len(todo), options.jobs):
        outcomes = list(_batch(todo[start : start + options.jobs], supplies, workshop, options))
        yield from outcomes
        if not all(outcome.ok for outcome in outcomes) and not options.keep_going:
            return


def _batch(
    items: Sequence[PlanItem], supplies: Supplies, workshop: Workshop, options: BuildOptions
) -> Iterator[Outcome]:
    for baked in bake_images(items, supplies, workshop, keep_going=options.keep_going):
        yield _after_bake(baked, workshop, options)


def _after_bake(baked: Baked, workshop: Workshop, options: BuildOptions) -> Outcome:
    if baked.image_id is None:
        return Outcome(baked.item, build_seconds=baked.seconds, error=baked.error)
    outcome = pass_gate(baked.item, baked.image_id, workshop, test=options.test)
    return replace(outcome, build_seconds=baked.seconds)


def load_bases(names: Iterable[str], workshop: Workshop) -> None:
    """Give the engine the base images, by operating system, that it does not have yet."""
    for name in names:
        base = workshop.inputs.bases[name]
        if base.layout and workshop.engine.inspect(base.reference) is None:
            _load(base, workshop)


def _load(base: BaseInput, workshop: Workshop) -> None:
    if base.layout is None:
        return
    with work_folder("base") as folder:
        archive = folder / "base.tar"
        save_archive(base.layout, archive)
        with archive.open("rb") as stream:
            workshop.engine.load(stream)
