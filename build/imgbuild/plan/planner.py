"""What has to be done for images: decided with one question to the engine, nothing heavy loaded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from imgbuild.dockerfile.labels import INPUT_DIGEST, NAME
from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.build_inputs import BuildInputs
from imgbuild.matrix.images import Image, standin_image
from imgbuild.plan.digest import InputDigest, input_digest
from imgbuild.plan.ownership import is_own, is_surely_own
from imgbuild.plan.plan import PlanItem, make_plan, open_rows
from imgbuild.plan.reading import Reading
from imgbuild.project import Project
from imgbuild.settings import StandIn
from imgbuild.suites.catalog import read_suites, required, suite_keys
from imgbuild.suites.expectation import expectation
from imgbuild.suites.results import Verdict
from imgbuild.suites.store import ReportStore


@dataclass(frozen=True)
class Planner:
    """The checkout, the engine, the inputs, and what this machine remembers."""

    project: Project
    engine: Engine
    inputs: BuildInputs
    store: ReportStore
    standin: StandIn | None = None

    def own(self, image: Image) -> Image:
        """Return the image under the repository that its builds here are named for."""
        return standin_image(image) if self.standin else image

    def expected(self, image: Image) -> dict[str, Any]:
        """Return what an image must be that is built here.

        Raises:
            InputError: its lock is missing or damaged.

        """
        return expectation(image, self.project, self.standin.versions if self.standin else None)

    def plan(
        self, images: Iterable[Image], *, test: bool, stored: Sequence[StoredImage] | None = None
    ) -> tuple[PlanItem, ...]:
        """Return what has to be done, asking the engine once for the whole matrix.

        ``stored`` are its images with an input digest, if it was asked already.

        Raises:
            InputError: a Dockerfile or lock is missing or not the current one.
            MachineError: the engine does not answer.

        """
        images = [self.own(image) for image in images]
        found = self.engine.images(INPUT_DIGEST) if stored is None else stored
        if not images:
            return ()
        reading = Reading(self.project)
        digests = [(i, input_digest(i, self.inputs, self.project, reading)) for i in images]
        own = self._own_images(found, digests)
        return make_plan(digests, own, self._verdicts(images, own), test=test)

    def _own_images(
        self, found: Sequence[StoredImage], digests: Sequence[tuple[Image, InputDigest]]
    ) -> list[StoredImage]:
        """Return imgbuild's own images; one whose history would have to be asked only if it counts.

        That costs a call each, and images without a name of imgbuild's are usual: what failed its
        suites, what was pulled under another name.
        """
        left = open_rows(digests, [one for one in found if is_surely_own(one)])
        return [
            one
            for one in found
            if is_surely_own(one)
            or (one.labels.get(NAME) in left and is_own(one, self.engine.history))
        ]

    def _verdicts(
        self, images: Sequence[Image], stored: Sequence[StoredImage]
    ) -> Callable[[str], Verdict]:
        """Return what is remembered of an image id, for the suites that its image must pass."""
        named = {image.name: image for image in images}
        of_id = {one.id: one.labels.get(NAME, "") for one in stored}

        @cache
        def suites() -> Mapping[str, Any]:
            found = read_suites(self.project.suites)
            return {variant: required(found, variant) for variant in ("cpu", "gpu")}

        @cache
        def keys(name: str) -> Mapping[str, str]:
            image = named[name]
            return suite_keys(suites()[image.variant], self.expected(image))

        @cache
        def offered() -> bool:
            return self.engine.version().gpus is not None

        @cache
        def verdict(image_id: str) -> Verdict:
            known = keys(of_id[image_id])
            found = self.store.verdict(image_id, known)
            # The engine is asked for GPUs only where the answer matters.
            with_gpus = self.store.verdict(image_id, known, gpus=True)
            return with_gpus if found is not with_gpus and offered() else found

        return verdict
