"""Opening the workshop: engine, buildx, settings and inputs, in the order that fails earliest."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imgbuild.building.revision import git_revision
from imgbuild.building.workshop import Workshop
from imgbuild.downloads.sites import make_sites
from imgbuild.engine.buildx import find_buildx
from imgbuild.engine.client import DockerEngine
from imgbuild.engine.display import BuildDisplay
from imgbuild.engine.endpoint import resolve_host
from imgbuild.fetching.offline import FetchedInputs, open_fetched
from imgbuild.matrix.image import Image
from imgbuild.plan.inputs import Preparation, prepare_inputs
from imgbuild.project import Project, cache_dir, state_dir
from imgbuild.settings import Settings, load_settings


@dataclass(frozen=True)
class Opening:
    """What the command line decides about the workshop.

    ``make`` false makes no input, ``refresh`` makes base images again. ``offline`` is a folder that
    ``imgbuild fetch`` filled, in place of the network.
    """

    say: Callable[[str], None]
    reports: Path | None = None
    make: bool = True
    refresh: bool = False
    offline: Path | None = None


@contextmanager
def open_workshop(
    project: Project, images: tuple[Image, ...], opening: Opening
) -> Iterator[Workshop]:
    """Give everything a build or test of ``images`` needs, and close the engine's connections.

    Raises:
        InputError: the settings are wrong.
        MachineError: no engine, no buildx, an input cannot be made.

    """
    settings = load_settings(project.settings)
    fetched = _fetched(project, images, opening, settings)
    if fetched:
        settings = fetched.settings(settings, images)
    state = state_dir()
    host = resolve_host(settings.engine)
    buildx = find_buildx(settings.engine)
    engine = DockerEngine(host)
    try:
        engine.version()
        log = state / "logs" / f"{time.strftime('%Y%m%dT%H%M%S')}-inputs.log"
        preparation = Preparation(
            cache_dir(), log, project, opening.say, opening.make, opening.refresh
        )
        inputs = prepare_inputs(images, settings, preparation)
        yield Workshop(
            project=project,
            engine=engine,
            host=host,
            buildx=buildx,
            inputs=fetched.known_bases(inputs, images) if fetched else inputs,
            state=state,
            reports=opening.reports or state / "runs",
            display=BuildDisplay([image.name for image in images]),
            cache=preparation.cache,
            sites=make_sites(images[0].matrix, settings),
            standin=settings.standin,
            revision=git_revision(project.root),
            fetched=fetched,
        )
    finally:
        engine.close()


def _fetched(
    project: Project, images: tuple[Image, ...], opening: Opening, settings: Settings
) -> FetchedInputs | None:
    if opening.offline is None:
        return None
    return open_fetched(opening.offline, images, project, settings, cache_dir())
