"""What every step of a build needs: the checkout, the engine, the inputs, where results go."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.build.display import BuildDisplay
from imgbuild.caches.several import NO_CACHES, Caches
from imgbuild.engine.buildx import Buildx
from imgbuild.engine.client import Engine
from imgbuild.fetching.offline import FetchedInputs
from imgbuild.inputs.build_inputs import BuildInputs
from imgbuild.matrix.images import Image
from imgbuild.plan.plan import PlanItem
from imgbuild.plan.planner import Planner
from imgbuild.project import Project
from imgbuild.settings import StandIn
from imgbuild.sites import Sites
from imgbuild.suites.store import ReportStore


@dataclass(frozen=True)
class Workshop:
    """The fixed surroundings of one ``imgbuild build`` or ``imgbuild test``."""

    project: Project
    engine: Engine
    host: str | None
    buildx: Buildx
    inputs: BuildInputs
    state: Path
    reports: Path
    display: BuildDisplay
    cache: Path
    sites: Sites
    standin: StandIn | None = None
    revision: str | None = None
    fetched: FetchedInputs | None = None
    caches: Caches = NO_CACHES

    @property
    def store(self) -> ReportStore:
        """The verdicts that this machine remembers."""
        return ReportStore(self.state / "reports")

    @property
    def planner(self) -> Planner:
        """Who tells what has to be done."""
        return Planner(self.project, self.engine, self.inputs, self.store, self.standin)

    def own(self, image: Image) -> Image:
        """Return the image under the repository that its builds here are named for."""
        return self.planner.own(image)

    def plan(self, images: Iterable[Image], *, test: bool) -> tuple[PlanItem, ...]:
        """Return what has to be done, asking the engine once for the whole matrix."""
        return self.planner.plan(images, test=test)

    def expected(self, image: Image) -> dict[str, Any]:
        """Return what an image must be that is built here.

        Raises:
            InputError: its lock is missing or damaged.

        """
        return self.planner.expected(image)
