"""``imgbuild push``: publish images whose suites passed.

All images are checked before the first one is pushed. Each image is then pushed in the following
steps, so that no incomplete image is visible:

1. The engine pushes the content under a tag of this push, which announces the immutable tag. Then
   the immutable tag is set if it is free and no other push has announced it.
2. The SBOM and the provenance are attached. With a signer, they and the image are signed.
3. The record is written, under the immutable tag plus ``.record``. The image is now published.
4. The input tag is set, with which ``imgbuild build --pull`` and CI find the image.
5. The moving tags are set.

A push does not change existing content, so the next push can complete an interrupted one. At the
end it reads all tags again, and fails if another push has moved one of them.

imgbuild only signs a digest that the engine has just sent. A manifest in the registry may claim to
be our image although it is not. An image without our signature is therefore pushed again, and the
digests are compared.

An immutable tag never moves. Registries cannot set a tag on condition that it is free, so a push
announces the tag first. If two pushes announce the same tag, at least one of them sees the other
announcement, and stops before it writes the tag. A record without its tag is a fault. The tag is
restored if the recorded image is signed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from imgbuild.build.context import BuildContext, BuildOptions, image_locks, open_context
from imgbuild.build.display import BuildDisplay
from imgbuild.core.errors import CheckFailedError, ImgbuildError, MachineError
from imgbuild.core.events import ImageState, Phase
from imgbuild.core.outcome import Outcome
from imgbuild.core.parallel import in_parallel
from imgbuild.core.project import Project
from imgbuild.engine.client import Engine
from imgbuild.matrix.images import Image
from imgbuild.net.repository import Manifest
from imgbuild.net.repository_client import connect
from imgbuild.net.signing import find_signer, read_trust
from imgbuild.publish.attachments import make_predicates
from imgbuild.publish.candidate import approve, check_allowed
from imgbuild.publish.contents import check_contents
from imgbuild.publish.existing import check_release
from imgbuild.publish.extended_candidate import (
    Candidate,
    ExtendedCandidate,
    approve_extended,
    check_names,
    check_repository,
)
from imgbuild.publish.image_push import Push, PushedImage
from imgbuild.publish.provenance import read_configuration
from imgbuild.publish.record import Record, read_published, release_order
from imgbuild.publish.upload import note_path, remove_left_tag, upload
from imgbuild.suites.container import machine_digest, remove_leftovers
from imgbuild.suites.runner import folder_name

#: How long an interrupt waits for pushes without progress messages from the engine, in seconds.
_END_SECONDS = 5.0


@dataclass(frozen=True)
class PushOptions:
    """The options of a push; ``allowed`` are options as in `Objection`.

    ``extended`` are the names of images from `imgbuild extend`. If there are any, they are pushed
    instead of ``images``, which then only provide the matrix and the settings.
    """

    images: tuple[Image, ...]
    to: str | None = None
    release: str | None = None
    allowed: frozenset[str] = frozenset()
    jobs: int = 3
    plan: bool = False
    sign_key: str | None = None
    sign_keyless: bool = False
    extended: tuple[str, ...] = ()


@dataclass(frozen=True)
class PushResult:
    """The pushed images and the errors of the others, in the order of the images."""

    repository: str
    images: tuple[PushedImage, ...]
    errors: Mapping[str, ImgbuildError]

    def failure(self) -> ImgbuildError | None:
        """Return the error of the whole push; None if all images were pushed.

        It is a `MachineError` if this machine caused all failures.
        """
        if not self.errors:
            return None
        machine = all(isinstance(error, MachineError) for error in self.errors.values())
        names: dict[str, list[str]] = {}
        for name, error in self.errors.items():
            names.setdefault(str(error), []).append(name)
        text = "\n".join(f"{', '.join(alike)}: {reason}" for reason, alike in names.items())
        return (MachineError if machine else CheckFailedError)(text)


def push_images(project: Project, options: PushOptions, log: Callable[[str], None]) -> PushResult:
    """Push images if all of them may be pushed; with ``plan``, only return the remaining steps.

    CheckFailedError: an image may not be pushed, and then none is pushed. In a plan, also if an
        immutable tag belongs to another image.
    InputError: an option is wrong, or there is no repository.
    MachineError: the engine or the registry cannot be reached, or another imgbuild works on one
        of the images.
    """
    check_allowed(options.allowed)
    check_release(options.release)
    settings = project.settings
    with ExitStack() as stack:
        registry = connect(options.to, settings, log, "--to")
        stack.callback(registry.close)
        check_names(options.extended, registry.name)
        build_options = BuildOptions()
        lock = not options.plan and not options.extended
        context = stack.enter_context(
            open_context(project, options.images, build_options, log, lock=lock)
        )
        if not options.plan:
            names = options.extended or [image.name for image in options.images]
            if options.extended:
                folders = [folder_name(name) for name in names]
                locks = image_locks(folders, context.engine.host, context.state / "locks")
                stack.enter_context(locks)
            remove_leftovers(names, context.engine)
        candidates: Sequence[Candidate]
        if options.extended:
            candidates = approve_extended(options.extended, context, options.allowed)
            check_repository(read_published(registry), options.extended)
        else:
            candidates = approve(context, options.allowed)
        signer = find_signer(options.sign_key, settings, keyless=options.sign_keyless)
        trust = signer.trust if signer and signer.key else read_trust(settings)
        push = Push(
            registry,
            registry.tags(),
            options.release,
            signer=signer,
            trust=trust,
            machine=machine_digest(context.state),
        )
        if options.plan:
            planned: list[PushedImage] = []
            for group in _groups(candidates):
                planned += _plan_group(push, group)
            return PushResult(registry.name, tuple(planned), {})
        display = BuildDisplay([candidate.name for candidate in candidates])
        return push_all(push, candidates, context, display, options.jobs)


def push_all(
    push: Push,
    candidates: Sequence[Candidate],
    context: BuildContext,
    display: BuildDisplay,
    jobs: int,
) -> PushResult:
    """Push ``jobs`` images in parallel; a failure does not stop the others, an interrupt does.

    Images of one release for several platforms are pushed one after the other, so that the second
    one gets the release of the first. If only the second one has changed, the first one joins its
    release.
    """
    groups = _groups(candidates)

    def push_group(group: Sequence[Candidate]) -> list[PushedImage | ImgbuildError]:
        first, *others = group
        results = [_push_image(push, context, display, first)]
        results += [_push_image(_with_new_tags(push), context, display, other) for other in others]
        pushed = [result for result in results if isinstance(result, PushedImage)]
        if len({result.record.release for result in pushed}) > 1:
            again = _push_image(_with_new_tags(push), context, display, first)
            if not isinstance(again, PushedImage) or again.steps:
                results[0] = again
        return results

    with display:
        stop = push.registry.close  # also ends all waits before a retry
        results = in_parallel(push_group, groups, jobs, stop=stop, grace=_END_SECONDS)
    pushed: list[PushedImage] = []
    errors: dict[str, ImgbuildError] = {}
    for group, group_results in zip(groups, results, strict=True):
        for candidate, result in zip(group, group_results, strict=True):
            if isinstance(result, PushedImage):
                pushed.append(result)
            else:
                errors[candidate.name] = result
    return PushResult(push.registry.name, tuple(pushed), errors)


def _groups(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Return the candidates, with those for several platforms of one image together."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(_release_name(candidate), []).append(candidate)
    return [*groups.values()]


def _with_new_tags(push: Push) -> Push:
    """Return the push with the present tags, which name the release of the group's first image."""
    try:
        return replace(push, tags=push.registry.tags())
    except ImgbuildError:
        return push  # the push of the image will report the fault


def _plan_group(push: Push, group: Sequence[Candidate]) -> list[PushedImage]:
    """Return the plans of a group; images of one new release are planned for that release."""
    plans = [push.plan(candidate) for candidate in group]
    releases = [plan.record.release for plan in plans]
    latest = max(releases, key=release_order)
    is_new = any("push" in plan.work for plan in plans if plan.record.release == latest)
    if len({*releases}) > 1 and is_new:
        same = replace(push, release=latest)
        plans = [same.plan(candidate) for candidate in group]
    return plans


def _release_name(candidate: Candidate) -> str:
    """Return the name that a candidate shares with the image for the other platform."""
    if isinstance(candidate, ExtendedCandidate):
        return candidate.name
    return candidate.name.removesuffix(f"-{candidate.image.architecture}")


def _push_image(
    push: Push, context: BuildContext, display: BuildDisplay, image: Candidate
) -> PushedImage | ImgbuildError:
    """Push one image over its own connection to the engine, and show the progress."""

    def show(state: Phase | Outcome, text: str = "") -> None:
        display.show_state(ImageState(image.name, state, text))

    def require_running() -> None:
        if push.registry.closed:
            raise KeyboardInterrupt  # the main thread was interrupted

    def progress(text: str) -> None:
        require_running()
        display.show_state(ImageState(image.name, Phase.PUSHING, text, quiet=True))

    def send(tag: str) -> str:
        require_running()
        if not isinstance(image, ExtendedCandidate):  # tags of extended images have no parts
            check_contents(image.image, image.stored.id, engine)
        show(Phase.PUSHING, tag)
        return upload(
            image.stored.id,
            tag,
            engine=engine,
            registry=push.registry,
            note=note,
            progress=progress,
        )

    def documents(record: Record, manifest: Manifest) -> Mapping[str, bytes]:
        configuration = read_configuration(push.registry, manifest)
        return make_predicates(image, record, configuration, engine, context)

    try:
        with closing(Engine(context.engine.host)) as engine:
            note = note_path(context.state, engine, folder_name(image.name))
            remove_left_tag(engine, note)
            show(Phase.CHECKING)
            pushed = push.push(image, send, documents)
    except ImgbuildError as error:
        show(Outcome.FAILED)
        return error
    show(Outcome.PUBLISHED if pushed.steps else Outcome.UP_TO_DATE)
    return pushed
