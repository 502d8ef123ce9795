"""``imgbuild push``: publish images whose suites passed.

Every image passes the gate before any is pushed. Then, for each image, in this order, so that
nothing incomplete is visible:

1. its content and immutable tag, by the engine: a registry shows a tag when all layers are there;
2. its record, under the immutable tag with ``.record``: from now on it counts as published;
3. its suites' verdicts and its input tag, by which ``imgbuild build --pull`` and CI find it;
4. its moving tags.

What is there already is left as it is, so a push that was cut off is completed by another. An
immutable tag never moves. In the end all tags are read again: one that another push moved meanwhile
is an error. Two pushes of the same images at once are for CI to prevent.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from imgbuild.build.context import BuildOptions, image_locks, open_context
from imgbuild.build.display import BuildDisplay
from imgbuild.build.remote import RemoteStore
from imgbuild.engine.client import Engine
from imgbuild.engine.progress import ImageNote, ImagesPlanned, ImageState
from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.http import RetryPolicy
from imgbuild.matrix.images import Image
from imgbuild.matrix.tags import input_tag, planned_tags
from imgbuild.parallel import in_parallel
from imgbuild.project import Project, state_dir
from imgbuild.publish.candidate import Allowance, PushCandidate, approve
from imgbuild.publish.contents import check_contents
from imgbuild.publish.existing import ExistingImage, existing_record, look_up
from imgbuild.publish.record import Record, image_size, put_record
from imgbuild.publish.upload import NOTES, Uploader, remove_left_tag
from imgbuild.registry.repository import Manifest
from imgbuild.registry.repository_client import RegistryClient, connect
from imgbuild.settings import load_settings
from imgbuild.suites.container import docker_exec, remove_leftovers

#: How long an interrupt waits for pushes that the engine reports nothing of, in seconds.
_END_SECONDS = 5.0

Log = Callable[[str], None]


@dataclass(frozen=True)
class PushOptions:
    """What the command line says."""

    images: tuple[Image, ...]
    to: str | None = None
    release: str | None = None
    allowance: Allowance = field(default_factory=Allowance)
    jobs: int = 3


@dataclass(frozen=True)
class PushedImage:
    """The record of an image, and what was done or is to do for it.

    ``steps`` are words such as ``pushed`` or ``move 2.2-gpu``, in order; none if all was there.
    ``kept`` are moving tags that stay at a later image.
    """

    record: Record
    steps: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class PushResult:
    """All images that were pushed, and the errors of the others, in the order of the images."""

    pushed: tuple[PushedImage, ...]
    errors: dict[str, ImgbuildError]


class PushStoppedError(Exception):
    """The push was interrupted; raised in the threads that work on it."""


@dataclass(frozen=True)
class Push:
    """One push into one repository. ``tags`` are all that the repository has at its start."""

    registry: RegistryClient
    tags: tuple[str, ...]
    images: tuple[PushCandidate, ...]
    options: PushOptions
    policy: RetryPolicy
    host: str | None
    log: Log
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def run(self) -> PushResult:
        """Push the images; the failure of one stops no other, an interrupt stops all."""
        stop = threading.Event()
        display = BuildDisplay([image.name for image in self.images])
        display.on_event(ImagesPlanned({image.name: "push" for image in self.images}))

        def push(image: PushCandidate) -> PushedImage | ImgbuildError:
            try:
                pushed = self._push_shown(image, display, stop)
            except ImgbuildError as error:
                display.on_event(ImageState(image.name, "failed"))
                return error
            state = "published" if pushed.steps else "up to date"
            display.on_event(ImageState(image.name, state))
            return pushed

        with display:
            found = in_parallel(
                push, self.images, self.options.jobs, stop=stop.set, grace=_END_SECONDS
            )
        pushed = tuple(one for one in found if isinstance(one, PushedImage))
        pairs = zip(self.images, found, strict=True)
        errors = {image.name: one for image, one in pairs if isinstance(one, ImgbuildError)}
        return PushResult(pushed, errors)

    def dry_run(self) -> tuple[PushedImage, ...]:
        """Return what is to do for each image; the registry is only read.

        Raises:
            CheckFailedError: an immutable tag belongs to another image.
            MachineError: the registry cannot be reached, or keeps failing.

        """
        return tuple(self._planned(image, self.look_up(image)) for image in self.images)

    def push(self, image: PushCandidate, upload: Callable[[str], None]) -> PushedImage:
        """Push one image; ``upload`` sends its content under a reference.

        Raises:
            CheckFailedError: the immutable tag belongs to another image; a tag was moved by someone
                else meanwhile; the registry refuses.
            MachineError: the registry or the engine cannot be reached, or keeps failing.

        """
        there = self.look_up(image)
        planned = self._planned(image, there)
        if not planned.steps:
            return planned
        manifest, steps = there.manifest, []
        if manifest is None:
            upload(f"{self.registry.name}:{there.tag}")
            manifest = self._uploaded(image, there.tag)
            steps.append("pushed")
        record = self._record(image, there, manifest)
        if record != there.record:
            self._require_unrecorded(there, manifest)
            put_record(self.registry, record)
        if record != there.record or there.input != manifest.digest:
            self._keep_verdicts(image, manifest)
            self._point(input_tag(record.input_digest), manifest)
            steps.append("recorded")
        for tag in there.to_move(manifest.digest):
            self._require_unmoved(tag, there.moving[tag], record)
            self._point(tag, manifest)
            steps.append(f"moved {tag}")
        self._check(record, there)
        return PushedImage(record, tuple(steps), planned.kept)

    def look_up(self, image: PushCandidate) -> ExistingImage:
        """Return what the repository has of an image; see `look_up`."""
        return look_up(self.registry, self.tags, image, self.options.release, self.now().date())

    def _planned(self, image: PushCandidate, there: ExistingImage) -> PushedImage:
        manifest = there.manifest
        record = self._record(image, there, manifest)
        recorded = manifest and record == there.record and there.input == manifest.digest
        steps = [
            *([] if manifest else ["push"]),
            *([] if recorded else ["record"]),
            *(f"move {tag}" for tag in there.to_move(manifest.digest if manifest else None)),
        ]
        kept = tuple(f"{tag} stays at {later}" for tag, later in there.kept.items())
        return PushedImage(record, tuple(steps), kept)

    def _record(
        self, image: PushCandidate, there: ExistingImage, manifest: Manifest | None
    ) -> Record:
        """Return the record that an image is to have; what is there already keeps its time."""
        record = Record(
            image=image.name,
            digest=manifest.digest if manifest else "",
            image_id=manifest.config_digest if manifest else image.image_id,
            size=image_size(manifest) if manifest else 0,
            release=there.release,
            tag=there.tag,
            moving=planned_tags(image.image).moving,
            input_digest=image.item.digest.total,
            variant=image.image.variant,
            stack=image.image.stack,
            pins={pin.component: pin.version for pin in image.image.pins},
            suites=image.suites(),
            report=image.required_report(),
            substitutes=image.allowed,
            published=f"{self.now():%Y-%m-%dT%H:%M:%SZ}",
        )
        if there.record is None or there.record.digest != record.digest:
            return record
        # Earlier versions recorded the id that the engine of the push gave to the image.
        return replace(record, published=there.record.published, image_id=there.record.image_id)

    def _uploaded(self, image: PushCandidate, tag: str) -> Manifest:
        manifest = self.registry.manifest(tag)
        if manifest is None:
            raise CheckFailedError(
                f"{self.registry.name}:{tag} is not there although the engine pushed "
                f"{image.name}: does the engine know this registry under another address? Look "
                "into its log."
            )
        if not manifest.is_image(image.image_id):
            raise CheckFailedError(self._lost(tag, manifest.digest, image.image_id))
        return manifest

    def _keep_verdicts(self, image: PushCandidate, manifest: Manifest) -> None:
        store = RemoteStore(self.registry, Engine(self.host), self.log)
        layers = image.stored.layers if image.stored else ()
        store.keep_verdicts(image.item.digest.total, layers, image.required_report(), manifest)

    def _require_unrecorded(self, there: ExistingImage, manifest: Manifest) -> None:
        """Refuse to go on if another push recorded another image; it gets its tag back."""
        record = existing_record(self.registry, there.tag)
        if record is None or record.digest == manifest.digest or record == there.record:
            return
        winner = self.registry.manifest(record.digest)
        if winner:
            self._point(there.tag, winner)
        raise CheckFailedError(self._lost(there.tag, record.digest, manifest.digest))

    def _require_unmoved(self, tag: str, before: str | None, record: Record) -> None:
        now = self.registry.head(tag)
        if now not in {before, record.digest}:
            raise CheckFailedError(self._moved(tag, now, record))

    def _check(self, record: Record, there: ExistingImage) -> None:
        """Read all tags again.

        Raises:
            CheckFailedError: one of them is another image's.

        """
        found = existing_record(self.registry, record.tag)
        if found is None or found.digest != record.digest:
            theirs = found.digest if found else "nothing"
            raise CheckFailedError(self._lost(record.tag, theirs, record.digest))
        tags = [record.tag, input_tag(record.input_digest), *there.to_move(None)]
        moved = {tag: self.registry.head(tag) for tag in tags}
        faults = [
            self._moved(tag, digest, record)
            for tag, digest in moved.items()
            if digest != record.digest
        ]
        if faults:
            raise CheckFailedError("\n".join(faults))

    def _point(self, tag: str, manifest: Manifest) -> None:
        self.registry.put_manifest(tag, manifest.content, manifest.media_type)

    def _lost(self, tag: str, theirs: str, mine: str) -> str:
        return (
            f"{self.registry.name}:{tag} was published by someone else at the same time: it is "
            f"{theirs}, and here it is {mine}. Run again; the image gets the next release, unless "
            "--release asks for this one."
        )

    def _moved(self, tag: str, now: str | None, record: Record) -> str:
        return (
            f"{self.registry.name}:{tag} was moved by someone else while this push ran, to "
            f"{now or 'nothing'}. It was left so; {record.tag} itself is complete. Run again to "
            f"move it to {record.digest}."
        )

    def _push_shown(
        self, image: PushCandidate, display: BuildDisplay, stop: threading.Event
    ) -> PushedImage:
        """Push one image with its own connection to the engine, and show how far it is."""

        def progress(name: str, text: str) -> None:
            if stop.is_set():
                raise PushStoppedError
            display.on_event(ImageNote(name, text))

        def pause(seconds: float) -> None:
            if stop.wait(seconds):
                raise PushStoppedError

        notes = state_dir() / NOTES
        with closing(Engine(self.host)) as engine:
            uploader = Uploader(engine, notes, self.policy, pause, progress, self.log)
            remove_left_tag(engine, notes, image.name)
            display.on_event(ImageState(image.name, "checking"))

            def upload(reference: str) -> None:
                pause(0)
                check_contents(image.image, image.image_id, engine, docker_exec(self.host))
                tag = reference.rpartition(":")[2]
                display.on_event(ImageState(image.name, "pushing", tag))
                uploader.push(image.name, image.image_id, reference)

            return self.push(image, upload)


@contextmanager
def open_push(
    project: Project, options: PushOptions, log: Log, *, dry_run: bool = False
) -> Iterator[Push]:
    """Give a push of images that all passed the gate, whose locks are held.

    A ``dry_run`` needs no lock, and removes nothing that a killed test left.

    Raises:
        CheckFailedError: the gate refuses an image: then none is pushed.
        InputError: no repository is named, or it is not the name of one.
        MachineError: the engine or the registry cannot be reached; another imgbuild works on one
            of the images.

    """
    settings = load_settings(project.settings)
    with ExitStack() as stack:
        registry = stack.enter_context(closing(connect(options.to, settings, log, "--to")))
        context = stack.enter_context(
            open_context(project, options.images, BuildOptions(make_inputs=False), log)
        )
        if not dry_run:
            names = [image.name for image in options.images]
            stack.enter_context(image_locks(names, context.host, context.state / "locks"))
            remove_leftovers(names, context.engine)
        images = approve(context, options.allowance)
        policy = RetryPolicy(settings.publishing.attempts, settings.publishing.first_wait)
        yield Push(registry, registry.tags(), images, options, policy, context.host, log)
