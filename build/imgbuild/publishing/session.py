"""One ``imgbuild push``: the images of this checkout that are green, into one repository."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from imgbuild.build.context import BuildContext, BuildOptions, image_locks, open_context
from imgbuild.build.display import BuildDisplay
from imgbuild.engine.client import Engine
from imgbuild.engine.progress import ImageNote, ImagesPlanned, ImageState
from imgbuild.errors import CheckFailedError
from imgbuild.matrix.images import Image
from imgbuild.project import Project, state_dir
from imgbuild.publishing.approved import Approved, approved
from imgbuild.publishing.candidate import candidate_of
from imgbuild.publishing.content import Sender
from imgbuild.publishing.family import Family, StoppedError, publish_family
from imgbuild.publishing.foresee import Foreseen, foresee
from imgbuild.publishing.gate import Allowance, judge, refusal_text
from imgbuild.publishing.index import Index, read_index, update_index
from imgbuild.publishing.ladder import settled
from imgbuild.publishing.names import names_folder, take_back
from imgbuild.publishing.publish import Published, Publisher
from imgbuild.publishing.read_tag import docker_exec, read_tags
from imgbuild.registry.client import RegistryClient, connect
from imgbuild.registry.repository import select_repository
from imgbuild.retry import RetryPolicy
from imgbuild.settings import load_settings
from imgbuild.suites.container import remove_leftovers

Say = Callable[[str], None]
NOTHING_ALLOWED = Allowance()


@dataclass(frozen=True)
class Wish:
    """What the command line asks for."""

    images: tuple[Image, ...]
    to: str | None = None
    release: str | None = None
    allowance: Allowance = NOTHING_ALLOWED
    roll_back: bool = False
    jobs: int = 3


@dataclass(frozen=True)
class Session:
    """A repository that is open, and the images that the gate let through."""

    registry: RegistryClient
    index: Index
    images: tuple[Approved, ...]
    patience: RetryPolicy
    names: Path
    host: str | None
    wish: Wish
    display: BuildDisplay
    say: Say

    def run(self) -> Family:
        """Publish the images, then let the index say so; the index is right also after failures.

        Raises:
            MachineError: the registry cannot be reached.

        """
        stop = threading.Event()
        with self.display:
            family = publish_family(
                self.images, lambda one: self._publish(one, stop), self.wish.jobs, stop
            )
        changed = [one.record for one in family.published if one.done]
        untold = [one.record.tag for one in family.published if not self.index.tells(one.record)]
        if untold or changed:
            index = update_index(self.registry, self.say, untold)
            roll_back = self.wish.roll_back
            family.fail(settled(self.registry, index, changed, self.say, roll_back=roll_back))
        return family

    def planned(self) -> tuple[Foreseen, ...]:
        """Return what publishing would do for each image; the registry is only read."""
        engine = Engine(self.host)
        publisher = self._publisher(engine, threading.Event())
        return tuple(foresee(publisher, image) for image in self.images)

    def _publish(self, image: Approved, stop: threading.Event) -> Published:
        """Publish one image with a connection to the engine of its own."""
        engine = Engine(self.host)
        try:
            take_back(engine, image.name, self.names)
            self.display.on_event(ImageState(image.name, "checking"))
            found = self._publisher(engine, stop).publish(image)
        except BaseException:
            if not stop.is_set():
                self.display.on_event(ImageState(image.name, "failed"))
            raise
        finally:
            engine.close()
        self.display.on_event(ImageState(image.name, "published" if found.done else "up to date"))
        return found

    def _publisher(self, engine: Engine, stop: threading.Event) -> Publisher:
        def told(name: str, text: str) -> None:
            if stop.is_set():
                raise StoppedError
            self.display.on_event(ImageNote(name, text))

        def pause(seconds: float) -> None:
            if stop.wait(seconds):
                raise StoppedError

        def send(name: str, image_id: str, reference: str) -> None:
            self.display.on_event(ImageState(name, "pushing", reference.rpartition(":")[2]))
            sender = Sender(engine, self.names, self.patience, pause, told, self.say)
            sender.send(name, image_id, reference)

        def check(image: Approved, release: str) -> None:
            execute = docker_exec(self.host)
            read_tags(image.image, image.image_id, release, engine, execute)

        return Publisher(
            registry=self.registry,
            index=self.index,
            tags=cache(self.registry.tags),
            now=lambda: datetime.now(UTC),
            send=send,
            check=check,
            release=self.wish.release,
            roll_back=self.wish.roll_back,
        )


@contextmanager
def open_session(
    project: Project, wish: Wish, say: Say, *, only_look: bool = False
) -> Iterator[Session]:
    """Give what publishes images that all passed the gate, whose locks are held.

    To ``only_look`` needs no lock, and removes nothing that a killed test left.

    Raises:
        CheckFailedError: the gate refuses an image: then none is published.
        InputError: no repository is named, or it is none.
        MachineError: the engine or the registry cannot be reached; another imgbuild works on one
            of the images.

    """
    settings = load_settings(project.settings)
    repository, option = select_repository(wish.to, settings, "--to")
    options = BuildOptions(make_inputs=False)
    with ExitStack() as stack:
        registry = stack.enter_context(closing(connect(repository, settings, say, option=option)))
        opened = stack.enter_context(open_context(project, wish.images, options, say))
        names = [image.name for image in wish.images]
        if not only_look:
            stack.enter_context(image_locks(names, opened.host, state_dir() / "locks"))
            remove_leftovers(names, opened.engine)
        images = approved_images(opened, wish)
        index = read_index(registry) or Index()
        patience = RetryPolicy(settings.publishing.attempts, settings.publishing.first_wait)
        folder = names_folder(state_dir(), opened.host)
        display = BuildDisplay(names)
        display.on_event(ImagesPlanned(dict.fromkeys(names, "push")))
        yield Session(registry, index, images, patience, folder, opened.host, wish, display, say)


def approved_images(context: BuildContext, wish: Wish) -> tuple[Approved, ...]:
    """Return the images, all of which may be published.

    Raises:
        CheckFailedError: one may not; each that may not is named, with every reason.

    """
    found, refused = [], []
    for item in context.plan(test=True):
        candidate = candidate_of(item, context)
        judgement = judge(candidate, wish.allowance)
        if judgement.ok:
            found.append(approved(candidate, judgement.allowed))
        else:
            refused.append(refusal_text(item.image, judgement.refusals))
    if refused:
        raise CheckFailedError("\n".join(refused))
    return tuple(found)
