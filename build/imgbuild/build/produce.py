"""``imgbuild build``: plan, build, test, name. The one function behind the command."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from imgbuild.build.bake import Baked, bake_images
from imgbuild.build.blame import blame_of
from imgbuild.build.gates import ends_work, pass_gates
from imgbuild.build.options import BuildOptions
from imgbuild.build.outcome import Outcome
from imgbuild.build.phases import phases
from imgbuild.build.supplies import bring_each
from imgbuild.build.workshop import Workshop
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.errors import ImgbuildError
from imgbuild.files import work_folder
from imgbuild.inputs.base import save_archive
from imgbuild.inputs.build_inputs import BaseInput
from imgbuild.plan.plan import Action, PlanItem


def produce(
    plan: Sequence[PlanItem], workshop: Workshop, options: BuildOptions
) -> Iterator[Outcome]:
    """Do what the plan says and yield what became of each image as soon as it is known.

    After a failure the images not yet begun are left out, unless ``keep_going``; after one of the
    engine they are left out in any case.
    """
    yield from (
        Outcome(item, item.image_id, named=True) for item in plan if item.action is Action.NOTHING
    )
    for outcomes in _stages_of_work(plan, workshop, options):
        ended = False
        for outcome in outcomes:
            ended = ended or ends_work(outcome, keep_going=options.keep_going)
            yield outcome
        if ended:
            return


def _stages_of_work(
    plan: Sequence[PlanItem], workshop: Workshop, options: BuildOptions
) -> Iterator[Iterator[Outcome]]:
    """Yield the outcomes of the images that only lacked tests or names, then of each bake's.

    Between them come those of images whose downloads or base cannot be had.
    """
    ready = [i for i in plan if i.action in {Action.TEST, Action.NAME}]
    if ready:
        built = [(item, item.image_id or "") for item in ready]
        yield _through_the_gate(built, workshop, options)
    todo = [item for item in plan if item.action is Action.BUILD]
    if not todo:
        return
    supplies, failed = bring_each(todo, workshop, keep_going=options.keep_going)
    left = [item for item in todo if item.image.name not in failed]
    failed = {**failed, **_without_base(left, workshop)}
    yield (
        Outcome(item, error=str(error), blame=blame_of(error))
        for item in todo
        if (error := failed.get(item.image.name))
    )
    left = [item for item in left if item.image.name not in failed]
    for items in _phases(left, workshop) if left else ():
        baking = bake_images(items, supplies, workshop, keep_going=options.keep_going)
        yield _after_bake(baking, workshop, options)


def _phases(items: Sequence[PlanItem], workshop: Workshop) -> Iterator[tuple[PlanItem, ...]]:
    templates = workshop.project.templates
    dockerfiles = [render_dockerfile(item.image, templates) for item in items]
    return phases(items, dockerfiles, containerd_store=workshop.engine.version().containerd_store)


def _after_bake(
    baking: Iterable[Baked], workshop: Workshop, options: BuildOptions
) -> Iterator[Outcome]:
    built: list[tuple[PlanItem, str]] = []
    seconds: dict[str, float] = {}
    ended = False
    for one in baking:
        seconds[one.item.image.name] = one.seconds
        if one.image_id:
            built.append((one.item, one.image_id))
        else:
            ended = ended or not options.keep_going
            yield Outcome(one.item, build_seconds=one.seconds, error=one.error, blame=one.blame)
    for outcome in () if ended else _through_the_gate(built, workshop, options):
        yield replace(outcome, build_seconds=seconds[outcome.item.image.name])


def _through_the_gate(
    built: Sequence[tuple[PlanItem, str]], workshop: Workshop, options: BuildOptions
) -> Iterator[Outcome]:
    for _, image_id in built:
        workshop.store.begin(image_id)
    keep_going, jobs = options.keep_going, options.jobs
    return pass_gates(built, workshop, test=options.test, keep_going=keep_going, jobs=jobs)


def _without_base(items: Sequence[PlanItem], workshop: Workshop) -> dict[str, ImgbuildError]:
    """Give the engine its bases; return why images have none, by name."""
    failed: dict[str, ImgbuildError] = {}
    for name in dict.fromkeys(item.image.os_name for item in items):
        try:
            load_bases([name], workshop)
        except ImgbuildError as error:
            failed |= {one.image.name: error for one in items if one.image.os_name == name}
    return failed


def load_bases(names: Iterable[str], workshop: Workshop) -> None:
    """Give the engine the base images, by operating system, that it does not have yet."""
    for name in names:
        base = workshop.inputs.bases[name]
        if base.layout and workshop.engine.inspect(base.reference) is None:
            _load(base, workshop)


def _load(base: BaseInput, workshop: Workshop) -> None:
    if base.layout is None:
        return
    base.require_whole()
    with work_folder("base") as folder:
        archive = folder / "base.tar"
        save_archive(base.layout, archive)
        with archive.open("rb") as stream:
            workshop.engine.load(stream)
