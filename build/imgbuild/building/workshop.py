"""What every step of a build needs: the checkout, the engine, the inputs, where results go."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
from imgbuild.suites.code import code_digest, list_suites
from imgbuild.suites.report import ReportStore


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

    def _verdicts(
        self, images: Sequence[Image], stored: Sequence[StoredImage]
    ) -> Callable[[str], Verdict]:
        """Return what is remembered of an image id; which suites it must have passed differs."""
        code = code_digest(self.project.suites)
        variants = {image.name: image.variant for image in images}
        offered = "gpu" in variants.values() and self.engine.version().gpus is not None
        suites = {
            one.id: list_suites(self.project.suites, variants.get(one.labels.get(NAME, ""), "cpu"))
            for one in stored
        }
        return lambda image_id: self.store.verdict(image_id, code, suites[image_id], gpus=offered)
