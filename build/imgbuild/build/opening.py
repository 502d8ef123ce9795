"""Opening what a build needs, in the order that fails earliest, and nothing before it is needed.

`open_planner` is enough to know what has to be done: settings, the engine's address, the inputs.
`equip` adds what builds and tests: buildx, a display, the sites of downloads.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.engine.client import Engine
from imgbuild.engine.endpoint import resolve_host
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.build_inputs import BuildInputs, Preparation, prepare_inputs
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import PlanItem
from imgbuild.plan.planner import Planner
from imgbuild.project import Project, cache_dir, state_dir
from imgbuild.settings import Settings, load_settings
from imgbuild.suites.store import ReportStore

if TYPE_CHECKING:
    from imgbuild.build.workshop import Workshop
    from imgbuild.caches.place import Place
    from imgbuild.caches.protocol import BuildCache
    from imgbuild.caches.several import Caches
    from imgbuild.fetching.offline import FetchedInputs


@dataclass(frozen=True)
class Opening:
    """What the command line decides about the workshop.

    ``make`` false makes no input, ``refresh`` makes base images again. ``offline`` is a folder that
    ``imgbuild fetch`` filled, in place of the network; ``seed`` is one that comes before it.
    ``step_seconds`` is how long a step of a build may run (0: for ever), in place of what the
    settings say. Caches are read from ``sources`` and written to ``targets``; ``published`` opens
    one that is read before them.
    """

    say: Callable[[str], None]
    reports: Path | None = None
    make: bool = True
    refresh: bool = False
    offline: Path | None = None
    seed: Path | None = None
    step_seconds: float | None = None
    sources: "tuple[Place, ...]" = ()
    targets: "tuple[Place, ...]" = ()
    published: "Callable[[Engine, Callable[[str], None]], BuildCache] | None" = None


@dataclass(frozen=True)
class Opened:
    """A planner, and what a workshop is made of beside it.

    ``stored`` are the engine's images with an input digest when it was opened.
    """

    planner: Planner
    stored: tuple[StoredImage, ...]
    images: tuple[Image, ...]
    opening: Opening
    settings: Settings
    host: str | None
    fetched: "FetchedInputs | None"
    caches: "Caches | None"

    def plan(self, *, test: bool) -> tuple[PlanItem, ...]:
        """Return what has to be done for the images; the engine is not asked again."""
        return self.planner.plan(self.images, test=test, stored=self.stored)


@contextmanager
def open_planner(project: Project, images: tuple[Image, ...], opening: Opening) -> Iterator[Opened]:
    """Give what tells what has to be done, and close the engine's connections afterwards.

    Raises:
        InputError: the settings are wrong.
        MachineError: there is no engine, or an input cannot be made.

    """
    settings = load_settings(project.settings)
    fetched = _fetched(project, images, opening, settings)
    if fetched:
        settings = fetched.settings(settings, images)
    state, cache, host = state_dir(), cache_dir(), resolve_host(settings.engine)
    engine = Engine(host)
    try:
        # First, since nothing need be made for an engine that does not answer.
        stored = tuple(engine.images(INPUT_DIGEST))
        log = state / "logs" / f"{time.strftime('%Y%m%dT%H%M%S')}-inputs.log"
        preparation = Preparation(cache, log, project, opening.say, opening.make, opening.refresh)
        caches = _caches(opening, engine)
        inputs = _inputs(images, settings, preparation, caches)
        inputs = fetched.known_bases(inputs, images) if fetched else inputs
        store = ReportStore(state / "reports")
        planner = Planner(project, engine, inputs, store, settings.standin)
        yield Opened(planner, stored, images, opening, settings, host, fetched, caches)
    finally:
        engine.close()


@contextmanager
def open_workshop(
    project: Project, images: tuple[Image, ...], opening: Opening
) -> Iterator["Workshop"]:
    """Give everything a build or test of ``images`` needs, and close the engine's connections.

    Raises:
        InputError: the settings are wrong.
        MachineError: no engine, no buildx, an input cannot be made.

    """
    with open_planner(project, images, opening) as opened:
        yield equip(opened)


def equip(opened: Opened) -> "Workshop":
    """Return the workshop of what was opened.

    Raises:
        MachineError: no engine, no buildx.

    """
    # Each of them, or what it imports, takes longer than to see that there is nothing to do.
    from imgbuild.build.display import BuildDisplay  # noqa: PLC0415
    from imgbuild.build.revision import git_revision  # noqa: PLC0415
    from imgbuild.build.workshop import Workshop  # noqa: PLC0415
    from imgbuild.caches.several import NO_CACHES  # noqa: PLC0415
    from imgbuild.engine.buildx import find_buildx  # noqa: PLC0415
    from imgbuild.sites import make_sites  # noqa: PLC0415

    planner, settings, state = opened.planner, opened.settings, state_dir()
    planner.engine.version()
    return Workshop(
        project=planner.project,
        engine=planner.engine,
        host=opened.host,
        buildx=find_buildx(settings.engine, opened.opening.step_seconds),
        inputs=planner.inputs,
        state=state,
        reports=opened.opening.reports or state / "runs",
        display=BuildDisplay([image.name for image in opened.images]),
        cache=cache_dir(),
        sites=make_sites(opened.images[0].matrix.upstream_urls, settings),
        standin=settings.standin,
        revision=git_revision(planner.project.root),
        fetched=opened.fetched,
        caches=opened.caches or NO_CACHES,
    )


def _caches(opening: Opening, engine: "Engine") -> "Caches | None":
    if not (opening.sources or opening.targets or opening.published):
        return None
    from imgbuild.caches.several import open_caches  # noqa: PLC0415

    first = [opening.published(engine, opening.say)] if opening.published else []
    return open_caches(opening.sources, opening.targets, engine, opening.say, first)


def _inputs(
    images: tuple[Image, ...],
    settings: Settings,
    preparation: Preparation,
    caches: "Caches | None",
) -> BuildInputs:
    if caches is None:
        return prepare_inputs(images, settings, preparation)
    from imgbuild.build.cached_bases import prepare_with_caches  # noqa: PLC0415

    return prepare_with_caches(images, settings, preparation, caches)


def _fetched(
    project: Project, images: tuple[Image, ...], opening: Opening, settings: Settings
) -> "FetchedInputs | None":
    if opening.seed:
        return _seeded(opening.seed, project, images, opening, settings)
    if opening.offline is None:
        return None
    from imgbuild.fetching.offline import open_fetched  # noqa: PLC0415 - brings requests

    return open_fetched(opening.offline, images, project, settings, cache_dir())


def _seeded(
    folder: Path, project: Project, images: tuple[Image, ...], opening: Opening, settings: Settings
) -> "FetchedInputs":
    from imgbuild.fetching.seed import open_seed  # noqa: PLC0415

    seeded, lacking = open_seed(folder, images, project, settings, cache_dir())
    for reason in lacking:
        opening.say(reason)
    return seeded
