"""Builds without an engine: what they tag, and what they leave alone."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from imgbuild.build.context import BuildContext, BuildOptions
from imgbuild.build.pull import PullSource
from imgbuild.build.result import Build, BuildResult
from imgbuild.build.run import build_images
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings, StandIn
from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.engine.build import BuildTarget
from imgbuild.engine.discovery import Buildx
from imgbuild.engine.failure import BuildFailedError, BuildFault
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.base import Base
from imgbuild.inputs.build_inputs import BuildInputs, ImageDownloads, InterpreterInput
from imgbuild.matrix.images import Image, standin_image
from imgbuild.plan.plan import PlanItem
from imgbuild.suites.catalog import code_digest
from imgbuild.suites.container import TestTarget
from imgbuild.suites.results import Check, Report, suite_result
from support import fake_engine
from support.fake_engine import FakeEngine

OLD, NEW = "tf-1.10-cpu-debian", "tf-2.2-cpu-debian"
INPUTS = BuildInputs(
    {"debian-12": Base("debian@sha256:abc", "sha256:abc", "registry")},
    {("3.6.15", "x86_64"): InterpreterInput(Path("/prefix"), "sha256:p", "local prefix")},
    Path("/uv"),
    "0.13.8",
    secrets={"ca": Path("/ca.pem")},
    downloads={OLD: ImageDownloads({}, {}), NEW: ImageDownloads({}, {"SHA256_X": "f" * 64})},
)
#: The base image is a setting: nothing is asked for it.
SETTINGS = Settings.model_validate(
    {"base": {"debian-12": {"from": "registry", "image": f"debian@sha256:{'a' * 64}"}}}
)
EPOCH, EPOCH_SECONDS = "2026-11-01T00:00:00Z", 1793491200


@dataclass
class Bench:
    """A machine; ``broken`` images do not build, ``faulty`` ones do not pass their suites.

    ``fault`` is why they do not build; without one it is the image's own. ``suite_error`` ends the
    suites of the older image. ``targets`` are all that was built, ``baked`` those that are images.
    """

    context: BuildContext
    broken: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    baked: list[str] = field(default_factory=list)
    targets: list[BuildTarget] = field(default_factory=list)
    tested: list[str] = field(default_factory=list)
    suites_run: list[tuple[str, ...]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    source: PullSource | None = None
    fault: BuildFault | None = None
    suite_error: BaseException | None = None

    @property
    def engine(self) -> FakeEngine:
        assert isinstance(self.context.engine, FakeEngine)
        return self.context.engine

    def change(self, **fields: object) -> None:
        """Change the context for the next builds."""
        self.context = replace(self.context, **fields)  # type: ignore[arg-type]

    def use(self, *images: Image) -> None:
        """Build these images instead, each on a base of its system, without downloads."""
        inputs = self.context.inputs
        bases, pythons = {**inputs.bases}, {**inputs.interpreters}
        for one in images:
            bases.setdefault(one.os_name, Base("ubuntu@sha256:a", "sha256:a", "registry"))
            python = (one.version_of("python"), one.machine)
            pythons.setdefault(python, InterpreterInput(None, "conda", "conda"))
        files = dict.fromkeys((one.name for one in images), ImageDownloads({}, {}))
        inputs = replace(inputs, bases=bases, interpreters=pythons, downloads=files)
        self.change(images=images, inputs=inputs)

    def pretend_standin(self) -> None:
        standin = StandIn(note="a test's", versions={"python": "3.6.15"})
        inputs = replace(self.context.inputs, standin=standin.note)
        images = tuple(map(standin_image, self.context.images))
        settings = SETTINGS.model_copy(update={"standin": standin})
        self.change(settings=settings, inputs=inputs, images=images)

    def run(self, **options: object) -> Build:
        chosen = replace(self.context.options, **options)  # type: ignore[arg-type]
        return build_images(replace(self.opened(), options=chosen), self.source)

    def opened(self) -> BuildContext:
        """Return the context that a command opens now."""
        return replace(self.context, stored=tuple(self.engine.images(INPUT_DIGEST)))

    def build(self, **options: object) -> list[BuildResult]:
        return [*self.run(**options).results]

    def states(self, **options: object) -> dict[str, str]:
        return {result.name: result.state for result in self.build(**options)}

    def plan(self, *, test: bool = True) -> tuple[PlanItem, ...]:
        return self.opened().plan(test=test)

    def tags(self, name: str | None = None) -> set[str]:
        """Return all tags of the engine, or those that an image should have."""
        if name is None:
            return {tag for image in self.engine.stored.values() for tag in image.tags}
        return {tag for image in self.context.images if image.name == name for tag in image.tags}

    def make_image(self, _buildx: object, target: BuildTarget, **more: object) -> tuple[str, float]:
        assert more["epoch"] == EPOCH_SECONDS
        self.targets.append(target)
        self.baked.append(target.name)
        if target.name in self.broken:
            raise self.build_error(target.name)
        return self._store(target)

    def build_error(self, name: str) -> BuildFailedError:
        return BuildFailedError(
            name,
            step="[horovod 2/2] RUN",
            cause="exit code 1",
            tail=(),
            log=Path("log"),
            fault=self.fault,
        )

    def export(self, _buildx: object, target: BuildTarget, _: Path, **_more: object) -> float:
        """Export a stage, which has no files here."""
        self.targets.append(target)
        return 0.0

    def _store(self, target: BuildTarget) -> tuple[str, float]:
        image_id = f"sha256:{len(self.engine.stored):064}"
        made = {"imgbuild.name": target.name, "org.opencontainers.image.created": EPOCH}
        labels = {**made, **target.labels}
        self.engine.stored[image_id] = StoredImage(image_id, (), labels, 10**9, EPOCH_SECONDS)
        return image_id, 61.5

    def suites(self, target: TestTarget, suites: tuple[str, ...], *_: object) -> Report:
        name = target.name
        if self.suite_error and name == OLD:
            raise self.suite_error
        self.tested.append(name)
        self.suites_run.append(suites)
        failures = (Check(test="test_x", message="no"),) if name in self.faulty else ()
        results = tuple(
            suite_result(name, passed=1, failures=failures, seconds=1.0) for name in suites
        )
        code = code_digest(self.context.project.suites)
        return Report(name, target.image_id, code, results)


def engine_has(monkeypatch: pytest.MonkeyPatch, **facts: object) -> None:
    """Let the engine in memory say other things of itself."""
    version = replace(fake_engine.VERSION, **facts)  # type: ignore[arg-type]
    monkeypatch.setattr(fake_engine, "VERSION", version)


def with_budget(image: Image, megabytes: int) -> Image:
    return replace(image, row=image.row.model_copy(update={"budget": {"cpu": megabytes}}))


@pytest.fixture
def bench(
    images: dict[str, Image], project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    said: list[str] = []
    context = BuildContext(
        project=project,
        images=(images[OLD], images[NEW]),
        options=BuildOptions(),
        settings=SETTINGS,
        engine=FakeEngine(),
        inputs=INPUTS,
        log=said.append,
        state=tmp_path / "state",
    )
    made = Bench(context, said=said)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    engine_has(monkeypatch, root_dir=str(tmp_path / "elsewhere"))
    monkeypatch.setattr("imgbuild.engine.discovery.find_buildx", lambda *_: Buildx(Path("/b"), "0"))
    # One image after the other; tests of several at a time say so.
    monkeypatch.setattr("imgbuild.build.workers.WORKERS", 1)
    monkeypatch.setattr("imgbuild.build.image_build.build_image", made.make_image)
    monkeypatch.setattr("imgbuild.build.image_build.export_files", made.export)
    monkeypatch.setattr("imgbuild.suites.session.run_suites", made.suites)
    return made
