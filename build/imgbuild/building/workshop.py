"""What every step of a build needs: the checkout, the engine, the inputs, where results go."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from imgbuild.engine.buildx import Buildx
from imgbuild.engine.display import BuildDisplay
from imgbuild.engine.protocol import Engine
from imgbuild.matrix.image import Image
from imgbuild.plan.digest import input_digest
from imgbuild.plan.inputs import BuildInputs
from imgbuild.plan.plan import PlanItem, make_plan
from imgbuild.project import Project
from imgbuild.render.labels import INPUT_DIGEST
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
    revision: str | None = None

    @property
    def store(self) -> ReportStore:
        """The verdicts that this machine remembers."""
        return ReportStore(self.state / "reports")

    def plan(self, images: Iterable[Image], *, test: bool) -> tuple[PlanItem, ...]:
        """Return what has to be done, asking the engine once for the whole matrix."""
        code, suites = code_digest(self.project.suites), list_suites(self.project.suites)
        digests = [(image, input_digest(image, self.inputs, self.project)) for image in images]
        stored = self.engine.images(INPUT_DIGEST)
        return make_plan(
            digests, stored, lambda image_id: self.store.verdict(image_id, code, suites), test=test
        )
