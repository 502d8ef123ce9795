"""A copy of the real project that can be changed, and the images that the original was built to."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from fake_engine import FakeEngine

from imgbuild.build.context import BuildContext, BuildOptions
from imgbuild.dockerfile.labels import INPUT_DIGEST, INPUT_PARTS, REPOSITORY, pin_labels
from imgbuild.dockerfile.render import render_all, write_all
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.build_inputs import BuildInputs, prepare_inputs
from imgbuild.matrix.images import Image, all_images, documented_family
from imgbuild.matrix.load import load_matrix
from imgbuild.plan.changes import parts_label
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.project import Project
from imgbuild.settings import Settings
from imgbuild.suites.results import ReportStore, SuiteResult

BASE = "registry.example.org/debian@sha256:"
SETTINGS = {"base": {"debian-12": {"from": "registry", "image": BASE + "a" * 64}}}


@dataclass
class Checkout:
    """A checkout, the settings of its machine, and the engine that has its images."""

    project: Project
    engine: FakeEngine
    cache: Path
    store: ReportStore
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))

    @property
    def images(self) -> tuple[Image, ...]:
        """Every image that the copy's matrix has now."""
        return all_images(load_matrix(self.project.matrix))

    def path(self, name: str) -> Path:
        """Return a file of the checkout."""
        return self.project.root / name

    def replace(self, name: str, old: str, new: str) -> None:
        """Replace one piece of text, which must be there, in a file of the checkout."""
        text = self.path(name).read_text(encoding="utf-8")
        assert old in text, f"{name} no longer holds {old!r}"
        self.path(name).write_text(text.replace(old, new, 1), encoding="utf-8")

    def edit_matrix(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the matrix as plain values, all of them text."""
        document = yaml.load(self.project.matrix.read_bytes(), Loader=yaml.BaseLoader)  # noqa: S506
        change(document)
        text = yaml.safe_dump(document, sort_keys=False, width=1000)
        self.project.matrix.write_text(text, encoding="utf-8")

    def render(self) -> list[Path]:
        """Do what ``imgbuild render`` does; return the Dockerfiles that changed."""
        matrix = load_matrix(self.project.matrix)
        images = (*all_images(matrix), *documented_family(matrix))
        rendered = render_all(images, self.project.templates, self.project.dockerfiles)
        return write_all(rendered, self.project.dockerfiles)

    def context(self) -> BuildContext:
        """Return the context that ``imgbuild build --all`` would open here."""
        return BuildContext(
            self.project,
            self.images,
            BuildOptions(),
            Settings.model_validate(self.settings),
            self.engine,
            None,
            self._inputs(),
            print,
            state=self.store.folder.parent,
            cache=self.cache,
        )

    def plan(self, *, test: bool = True) -> dict[str, PlanItem]:
        """Return what ``imgbuild build --all --plan`` finds, by image."""
        return {i.image.name: i for i in self.context().plan(test=test)}

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
            image_id = f"sha256:{number:064x}"
            labels = {**pin_labels(item.image), **_input_labels(item)}
            created = epoch_seconds(item.image)
            stored = StoredImage(image_id, item.image.tags, labels, created=created)
            self.engine.stored[image_id] = stored
            self._pass(context, item.image, image_id)
        self.engine.calls.clear()

    def copy(self, folder: Path) -> "Checkout":
        """Return another copy, on an engine with the same images."""
        engine = FakeEngine(list(self.engine.stored.values()))
        project = copied(self.project, folder / "checkout")
        return replace(self, project=project, engine=engine, settings=dict(self.settings))

    def _inputs(self) -> BuildInputs:
        settings = Settings.model_validate(self.settings)
        return prepare_inputs(self.images, settings, self.project, print, make=False)

    def _pass(self, context: BuildContext, image: Image, image_id: str) -> None:
        keys = context.suite_keys[image.name]
        results = [SuiteResult(name, 1, (), (), 0.1) for name in keys]
        self.store.save(image_id, keys, results, gpus=True)


def _input_labels(item: PlanItem) -> Mapping[str, str]:
    return {
        INPUT_DIGEST: item.digest.total,
        INPUT_PARTS: parts_label(item.digest),
        REPOSITORY: item.image.repository,
    }


def copied(project: Project, root: Path) -> Project:
    """Return a copy of what plans are made of."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(project.root / "images", root / "images", ignore=ignore)
    shutil.copytree(project.suites, root / "tests" / "image", ignore=ignore)
    shutil.copy(project.matrix, root / "matrix.yaml")
    return Project(root)


def named(images: tuple[Image, ...], wanted: Callable[[Image], bool]) -> set[str]:
    """Return the names of the images that ``wanted`` is true of: some, or the test is void."""
    found = {image.name for image in images if wanted(image)}
    assert found, "no image of the matrix is of the kind that this test is about"
    return found


def inputs_changed(items: Mapping[str, PlanItem]) -> set[str]:
    """Return the names of all inputs that plan items call changed."""
    return {change.input for item in items.values() for change in item.changes}
