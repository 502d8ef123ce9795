"""A copy of the real project that can be changed, and the images that the original was built to."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from imgbuild.build.context import BuildContext, BuildOptions
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, REPOSITORY, pin_labels
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.build_inputs import BuildInputs, prepare_inputs
from imgbuild.matrix.images import with_other_architectures
from imgbuild.plan.changes import parts_label
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.results import suite_result
from imgbuild.suites.store import ReportStore
from support.fake_engine import FakeEngine
from support.project_copy import ProjectCopy, copied

BASE = "registry.example.org/debian@sha256:"
SETTINGS = {"base": {"debian-12": {"from": "registry", "image": BASE + "a" * 64}}}
#: An image of each kind: both stacks, three Pythons, MPI of each origin and none, CUDA of each
#: origin, two images of one lock.
KINDS = {
    *("tf-1.10-cpu-ubuntu", "tf-2.2-gpu-ubuntu", "tf-1.12-cpu-debian", "tf-2.2-cpu-debian"),
    *("tf-2.2-cpu-debian-intelmpi", "tf-2.12-gpu-debian", "tf-2.21-cpu-debian-no-mpi"),
}


@dataclass
class Checkout(ProjectCopy):
    """A checkout, the settings of its machine, and the engine that has its images."""

    project: Project
    store: ReportStore
    engine: FakeEngine = field(default_factory=FakeEngine)
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))

    def path(self, name: str) -> Path:
        """Return a file of the checkout."""
        return self.project.root / name

    def context(self) -> BuildContext:
        """Return the context that ``imgbuild build --all`` would open here."""
        return BuildContext(
            project=self.project,
            images=self.images,
            options=BuildOptions(),
            settings=Settings.model_validate(self.settings),
            engine=self.engine,
            inputs=self._inputs(),
            log=print,
            stored=tuple(self.engine.images(INPUT_DIGEST)),
            state=self.store.folder.parent,
        )

    def plan(self) -> dict[str, PlanItem]:
        """Return what ``imgbuild build --all --dry-run`` finds, by image."""
        return {item.image.name: item for item in self.context().plan(test=True)}

    def rebuilt(self) -> dict[str, PlanItem]:
        """Return what would be built, after rendering; the rest must be up to date."""
        self.render()
        plan = self.plan()
        assert {i.action for i in plan.values()} <= {Action.BUILD, Action.NOTHING}
        return {name: item for name, item in plan.items() if item.action is Action.BUILD}

    def build(self) -> None:
        """Put every image into the engine as if it had been built, tested and named."""
        context = self.context()
        for number, item in enumerate(context.plan(test=True)):
            image, image_id = item.image, f"sha256:{number:064x}"
            labels = {
                **pin_labels(image),
                INPUT_DIGEST: item.digest.total,
                INPUT_PARTS: parts_label(item.digest),
                REPOSITORY: image.repository,
            }
            created = epoch_seconds(image)
            stored = StoredImage(image_id, image.tags, labels, created=created)
            self.engine.stored[image_id] = stored
            keys = context.suite_keys[image.name]
            results = [suite_result(name, passed=1, seconds=0.1) for name in keys]
            self.store.save(image_id, keys, results)
            self.store.import_results(image_id, {}, built=True)
        self.engine.calls.clear()

    def copy(self, folder: Path) -> "Checkout":
        """Return another copy, on an engine with the same images."""
        engine = FakeEngine(list(self.engine.stored.values()))
        project = copied(self.project, folder / "checkout")
        return replace(self, project=project, engine=engine, settings=dict(self.settings))

    def _inputs(self) -> BuildInputs:
        settings = Settings.model_validate(self.settings)
        return prepare_inputs(self.images, settings, self.project)


def built_checkout(project: Project, folder: Path) -> Checkout:
    """Return a copy with the rows of `KINDS`, whose images are all built, tested and tagged."""
    store = ReportStore(folder / "state" / "imgbuild" / "reports")
    made = Checkout(copied(project, folder / "checkout"), store)
    _keep_kinds(made)
    made.build()
    return made


def _keep_kinds(checkout: Checkout) -> None:
    """Remove the other rows from a copy, with their Dockerfiles and locks."""
    rows = checkout.images[0].matrix.images
    kept = [rows.index(image.row) for image in checkout.images if image.name in KINDS]
    assert len(kept) == len(KINDS)

    def keep(document: dict[str, Any]) -> None:
        document["images"] = [document["images"][index] for index in kept]

    checkout.edit_matrix(keep)
    checkout.render()
    images = with_other_architectures(checkout.images)
    locks = {name for image in images for name in image.lock_names}
    for lock in checkout.project.locks.glob("tf-*.txt"):
        if lock.name not in locks:
            lock.unlink()
