"""What every step of a build needs: the checkout, the engine, the inputs, where results go."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from imgbuild.downloads.sites import Sites
from imgbuild.engine.buildx import Buildx
from imgbuild.engine.display import BuildDisplay
from imgbuild.engine.protocol import Engine
from imgbuild.engine.stored import StoredImage
from imgbuild.fetching.offline import FetchedInputs
from imgbuild.matrix.image import Image, standin_image
from imgbuild.plan.digest import input_digest
from imgbuild.plan.inputs import BuildInputs
from imgbuild.plan.plan import PlanItem, Verdict, make_plan
from imgbuild.project import Project
from imgbuild.render.labels import INPUT_DIGEST, NAME
from imgbuild.settings import StandIn
from imgbuild.suites.code import read_suites, required, suite_keys
from imgbuild.suites.expectation import expectation
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

    @property
    def store(self) -> ReportStore:
        """The verdicts that this machine remembers."""
        return ReportStore(self.state / "reports")

    def own(self, image: Image) -> Image:
        """Return the image under the repository that its builds here are named for."""
        return standin_image(image) if self.standin else image

    def plan(self, images: Iterable[Image], *, test: bool) -> tuple[PlanItem, ...]:
        """Return what has to be done, asking the engine once for the whole matrix."""
        images = [self.own(image) for image in images]
        digests = [(image, input_digest(image, self.inputs, self.project)) for image in images]
        stored = self.engine.images(INPUT_DIGEST)
        return make_plan(digests, stored, self._verdicts(images, stored), test=test)

    def expected(self, image: Image) -> dict[str, Any]:
        """Return what an image must be that is built here.

        Raises:
            InputError: its lock is missing or damaged.

        """
        return expectation(image, self.project, self.standin.versions if self.standin else None)

    def _verdicts(
        self, images: Sequence[Image], stored: Sequence[StoredImage]
    ) -> Callable[[str], Verdict]:
        """Return what is remembered of an image id, for the suites that its image must pass."""
        named = {image.name: image for image in images}
        offered = any(i.variant == "gpu" for i in images) and self.engine.version().gpus is not None
        of_id = {one.id: one.labels.get(NAME, "") for one in stored}
        suites = read_suites(self.project.suites)

        @cache
        def keys(name: str) -> Mapping[str, str]:
            image = named[name]
            return suite_keys(required(suites, image.variant), self.expected(image))

        return lambda image_id: self.store.verdict(image_id, keys(of_id[image_id]), gpus=offered)
