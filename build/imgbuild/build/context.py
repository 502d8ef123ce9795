"""Open the context of a build, test or push: settings, engine, inputs and result folders."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from imgbuild.core.errors import MachineError
from imgbuild.core.files import hold_lock, lock_owner
from imgbuild.core.outcome import Outcome
from imgbuild.core.process import run
from imgbuild.core.project import REVISION, Project
from imgbuild.core.settings import Settings
from imgbuild.core.user_folders import state_dir
from imgbuild.dockerfile.labels import INPUT_DIGEST
from imgbuild.engine.client import Engine
from imgbuild.engine.discovery import resolve_host
from imgbuild.engine.types import StoredImage
from imgbuild.inputs.build_inputs import BuildInputs, check_settings, prepare_inputs
from imgbuild.matrix.images import Image, standin_image
from imgbuild.matrix.selection import build_hint
from imgbuild.plan.digest import InputDigest, InputReader, input_digest
from imgbuild.plan.plan import PlanItem, make_plan
from imgbuild.suites.catalog import read_suites, select_required, suite_keys
from imgbuild.suites.expectation import expectation
from imgbuild.suites.store import ReportStore

if TYPE_CHECKING:
    from imgbuild.build.display import BuildDisplay
    from imgbuild.engine.discovery import Buildx
    from imgbuild.inputs.fetched import Listing
    from imgbuild.suites.runner import TestSession

Log = Callable[[str], None]


@dataclass(frozen=True)
class BuildOptions:
    """The options of a build on the command line.

    - ``jobs``: number of images tested in parallel
    - ``refresh_base``: make base images again
    - ``offline``: a folder written by ``imgbuild build --fetch``
    - ``step_seconds``: time limit of a step (0: no limit), overrides the settings
    - ``builders``: override ``engine.builder`` in the settings
    - ``buildkit_cache``: a repository for BuildKit's layer cache
    """

    test: bool = True
    keep_going: bool = False
    jobs: int = 2
    refresh_base: bool = False
    offline: Path | None = None
    step_seconds: float | None = None
    reports: Path | None = None
    builders: tuple[str, ...] = ()
    buildkit_cache: str | None = None


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """The settings, engine and inputs that all steps of one command share; slow parts load lazily.

    ``images`` have the repository used for their tags. ``stored`` are the engine's images that had
    an input digest when the context was opened. ``listings`` maps images to the listings of
    ``--offline``.
    """

    project: Project
    images: tuple[Image, ...]
    options: BuildOptions
    settings: Settings
    engine: Engine
    inputs: BuildInputs
    log: Log
    stored: tuple[StoredImage, ...] = ()
    listings: "Mapping[str, Listing]" = field(default_factory=dict)
    state: Path = field(default_factory=state_dir)

    @property
    def reports(self) -> Path:
        return self.options.reports or self.state / "runs"

    def log_path(self, name: str) -> Path:
        return self.state / "logs" / f"{time.strftime('%Y%m%dT%H%M%S')}-{name}.log"

    @property
    def store(self) -> ReportStore:
        return ReportStore(self.state / "reports")

    @property
    def test_session(self) -> "TestSession":
        from imgbuild.suites.runner import TestSession  # noqa: PLC0415

        return TestSession(
            project=self.project,
            engine=self.engine,
            store=self.store,
            reports=self.reports,
            listener=self.display.show_state,
            slots=threading.Semaphore(self.options.jobs),
        )

    @cached_property
    def buildx(self) -> "Buildx":
        """Buildx with the engine's own builder."""
        from imgbuild.engine.discovery import find_buildx  # noqa: PLC0415

        buildx = find_buildx(self.settings.engine, self.engine.host, self.options.step_seconds)
        return replace(buildx, platform=self.engine.version().platform)

    @cached_property
    def builders(self) -> "tuple[Buildx, ...]":
        """Buildx with each builder that builds images."""
        from imgbuild.engine.discovery import with_builder  # noqa: PLC0415

        names = dict.fromkeys(self.settings.engine.builders)
        return tuple(with_builder(self.buildx, name) for name in names)

    @cached_property
    def display(self) -> "BuildDisplay":
        from imgbuild.build.display import BuildDisplay  # noqa: PLC0415

        return BuildDisplay([image.name for image in self.images])

    @cached_property
    def revision(self) -> str | None:
        """The commit of the checkout, with ``-dirty`` if files differ; None outside git."""
        if self.project.is_installed:  # the .venv may be inside another repository
            return (self.project.root / REVISION).read_text(encoding="utf-8") or None
        git = ["git", "-C", str(self.project.root)]
        head = run([*git, "rev-parse", "HEAD"], timeout=10)
        if not head.ok:
            return None
        status = run([*git, "status", "--porcelain"], timeout=10)
        return head.output.strip() + ("-dirty" if status.output.strip() else "")

    @cached_property
    def digests(self) -> Mapping[str, InputDigest]:
        reader = InputReader(self.project)
        return {image.name: input_digest(image, self.inputs, reader) for image in self.images}

    def plan(self, *, test: bool) -> tuple[PlanItem, ...]:
        """Compare the digest of each image with the engine's images; return the remaining work.

        InputError: a Dockerfile or lock is missing or out of date.
        """
        digests = [(image, self.digests[image.name]) for image in self.images]
        return make_plan(digests, self.stored, self.passed, self.store.is_own, test=test)

    def planned(self, image: Image, stored: Sequence[StoredImage]) -> PlanItem:
        """Return the remaining work for one image; ``stored`` are its versions in the engine."""
        digests, test = [(image, self.digests[image.name])], self.options.test
        return make_plan(digests, stored, self.passed, self.store.is_own, test=test)[0]

    def need_own(self, image: Image) -> StoredImage:
        """Return the engine's copy of an image that this machine built or pulled.

        InputError: the engine does not have the image, or there is no record of its origin.
        """
        stored = self.engine.need(image.tags[0], build_hint(image))
        self.store.require_own(stored.id, image)
        return stored

    def expected(self, image: Image) -> dict[str, Any]:
        """Return the properties that the suites expect of an image from this build."""
        standin = self.settings.standin
        return expectation(image, self.project, standin.versions if standin else None)

    @cached_property
    def suite_keys(self) -> Mapping[str, Mapping[str, str]]:
        suites = read_suites(self.project.suites)
        keys = {}
        for image in self.images:
            expected = self.expected(image)
            keys[image.name] = suite_keys(select_required(suites, expected), expected)
        return keys

    @cached_property
    def gpus(self) -> str | None:
        from imgbuild.suites.container import gpu_fingerprint  # noqa: PLC0415 - rarely asked for

        return gpu_fingerprint(self.engine)

    def passed(self, image: Image, image_id: str) -> bool | None:
        """Return whether an image id passed the suites of its image; None if this is unknown."""
        keys = self.suite_keys[image.name]
        verdict = self.store.verdict(image_id, keys)
        # Query engine and driver for GPUs only if it changes the verdict.
        if verdict is not self.store.verdict(image_id, keys, gpus=""):
            verdict = self.store.verdict(image_id, keys, gpus=self.gpus)
        return {Outcome.PASSED: True, Outcome.FAILED: False}.get(verdict)


@contextmanager
def open_context(
    project: Project,
    images: tuple[Image, ...],
    options: BuildOptions,
    log: Log,
    *,
    lock: bool = False,
) -> Iterator[BuildContext]:
    """Open the context of a command, and close the engine's connections afterwards.

    With ``lock``, no other imgbuild can work on these images until the context is closed.

    InputError: the settings are wrong.
    MachineError: there is no engine, a base image cannot be made, or another imgbuild works on one
        of the images.
    """
    settings = project.settings.with_builders(options.builders).recall_made()
    listings: Mapping[str, Listing] = {}
    if settings.standin:
        images = tuple(map(standin_image, images))
    if options.offline:
        from imgbuild.inputs.fetched import (  # noqa: PLC0415 - rarely needed
            offline_settings,
            read_listings,
        )

        listings = read_listings(options.offline, images, project, settings)
        for listing in listings.values():
            contents = listing.contents(options.offline)
            log(f"{contents}; compare this line with the output of `imgbuild build --fetch`")
        settings = offline_settings(settings, images, listings, options.offline)
    host = resolve_host(settings.engine)
    with ExitStack() as stack:
        if lock:
            names = [image.name for image in images]
            stack.enter_context(image_locks(names, host, state_dir() / "locks"))
        engine = stack.enter_context(closing(Engine(host)))
        # List the images first: without an engine, preparing the inputs is wasted work.
        stored = tuple(engine.images(INPUT_DIGEST))
        if options.refresh_base:
            from imgbuild.build.bases import make_bases  # noqa: PLC0415 - rarely needed

            check_settings(settings, images[0].matrix)
            settings = make_bases(images, settings, engine, log, refresh=True)
        inputs = prepare_inputs(images, settings, project)
        if listings:
            from imgbuild.inputs.fetched import apply_known_bases  # noqa: PLC0415

            inputs = apply_known_bases(inputs, images, listings)
        yield BuildContext(
            project=project,
            images=images,
            options=options,
            settings=settings,
            engine=engine,
            inputs=inputs,
            log=log,
            stored=stored,
            listings=listings,
        )


@contextmanager
def image_locks(names: Iterable[str], host: str | None, folder: Path) -> Iterator[None]:
    """Lock the named images on one engine, so that no second build races for their tags.

    MachineError: another imgbuild works on one of them; the message has its process id.
    """
    engine = re.sub(r"[^A-Za-z0-9]+", "-", host or "default").strip("-")
    with ExitStack() as stack:
        # Always lock in the same order, so that two builds cannot deadlock.
        for name in sorted(names):
            lock = folder / f"{engine}-{name}.lock"
            stack.enter_context(hold_lock(lock, partial(_refuse, name, lock)))
        yield


def _refuse(name: str, lock: Path) -> NoReturn:
    raise MachineError(
        f"{name} is being built, tested or pushed by another imgbuild (process {lock_owner(lock)}) "
        "on this engine. Wait until it ends, or stop it. This command started nothing."
    )
