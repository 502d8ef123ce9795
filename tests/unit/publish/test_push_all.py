"""A push from the options to the engine: each place where a slip would publish something else."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench import Bench
from fake_engine import FakeEngine
from memory_registry import MemoryRegistry
from test_push import FIRST, MOVING, NAME, documents, id_of, place_image
from test_push import Bench as Pushes

from imgbuild.build.context import image_locks
from imgbuild.build.display import BuildDisplay
from imgbuild.engine.types import RunOptions, StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.events import Event, ImageNote, ImageState
from imgbuild.matrix.images import Image
from imgbuild.project import Project, state_dir
from imgbuild.publish import push as push_module
from imgbuild.publish.push import PushOptions, PushResult, push_all, push_images
from imgbuild.publish.upload import note_of
from imgbuild.suites.container import CONTAINER_LABEL, label_of

NAMES = (NAME, "tf-2.1-cpu-debian", "tf-2.0-cpu-debian")


class PushingEngine(FakeEngine):
    """An engine whose pushes arrive in a registry, but for that of the ``lost`` image.

    ``then`` is done after a push.
    """

    def __init__(self, ids: Sequence[str], registry: MemoryRegistry) -> None:
        super().__init__([StoredImage(one, (f"mine:{one[-12:]}",)) for one in ids])
        self.target, self.lost = registry, ""
        self.then: Callable[[], object] = lambda: None

    def push(
        self, reference: str, on_message: Callable[[Mapping[str, object]], None] = lambda _: None
    ) -> None:
        super().push(reference, on_message)
        image_id = self.registry[reference].id
        if image_id == self.lost:
            raise CheckFailedError("The engine refuses: connection reset by peer.")
        self.target.tagged[reference.removeprefix(f"{self.target.name}:")] = image_id
        self.then()


@dataclass
class Pushing:
    """Images that passed the gate, an engine that has them, and what a push showed of them."""

    pushes: Pushes
    images: list[Image]
    engine: PushingEngine
    folder: Path
    shown: list[Event] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [*self.engine.stored]

    def __call__(self, jobs: int = 1) -> PushResult:
        display = BuildDisplay([image.name for image in self.images])
        display.on_event = self.shown.append  # type: ignore[method-assign, assignment]
        context: Any = SimpleNamespace(display=display, host=None, state=self.folder)
        candidates = [
            replace(self.pushes.candidate(image.name), image=image, image_id=image_id)
            for image, image_id in zip(self.images, self.ids, strict=True)
        ]
        return push_all(self.pushes.session(), candidates, context, jobs)


@pytest.fixture
def pushing(
    images: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Pushing]:
    """Return what gives pushes of images with these names."""

    def make(*names: str) -> Pushing:
        pushes = Pushes(images[NAME])
        ids = [pushes.registry.add_image(name).digest for name in names]
        pushes.registry.tagged.clear()
        engine = PushingEngine(ids, pushes.registry)
        monkeypatch.setattr(push_module, "Engine", lambda _: engine)
        return Pushing(pushes, [images[name] for name in names], engine, tmp_path)

    monkeypatch.setattr(push_module, "predicates", documents)
    monkeypatch.setattr(push_module, "check_contents", lambda *_: None)
    return make


def test_a_failed_image_stops_no_other(pushing: Callable[..., Pushing]) -> None:
    """In all threads, from the engine to the moving tags; the engine keeps no tag of it."""
    push = pushing(*NAMES)
    first, push.engine.lost, _ = push.ids
    result = push(jobs=2)
    assert [one.record.image for one in result.images] == [NAMES[0], NAMES[2]]
    assert [one.steps[0] for one in result.images] == ["push", "push"]
    assert {push.pushes.registry.tagged[tag] for tag in MOVING} == {first}
    failure = result.failure()
    assert isinstance(failure, MachineError)
    assert NAMES[1] in str(failure)
    assert all(one.tags == (f"mine:{one.id[-12:]}",) for one in push.engine.stored.values())
    assert not [*push.folder.rglob("*.json")]
    assert {one.image for one in push.shown if isinstance(one, ImageNote) and one.text} == {*NAMES}
    for name, end in zip(NAMES, ("published", "failed", "published"), strict=True):
        events = [one for one in push.shown if isinstance(one, ImageState) and one.image == name]
        assert [one.state for one in events] == ["checking", "pushing", end]


def test_it_is_the_machines_error_only_if_no_image_is_at_fault() -> None:
    machine, image = MachineError("no registry"), CheckFailedError("moved by someone else")
    assert PushResult("x", (), {}).failure() is None
    assert isinstance(PushResult("x", (), {"a": machine, "b": machine}).failure(), MachineError)
    assert isinstance(PushResult("x", (), {"a": machine, "b": image}).failure(), CheckFailedError)


def test_nothing_of_an_image_that_is_not_what_its_tag_says_is_sent(
    pushing: Callable[..., Pushing], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*_: object) -> None:
        raise CheckFailedError("another Python")

    monkeypatch.setattr(push_module, "check_contents", differs)
    push = pushing(NAME)
    assert "another Python" in str(push().failure())
    assert "push" not in push.engine.calls
    assert push.pushes.registry.tagged == {}


def test_a_push_removes_the_tag_of_one_that_was_killed(pushing: Callable[..., Pushing]) -> None:
    push = pushing(NAME)
    (image_id,), reference = push.ids, f"{push.pushes.registry.name}:killed"
    push.engine.tag(image_id, reference)
    note = note_of(push.folder, push.engine, NAME)
    note.parent.mkdir(parents=True)
    note.write_text(f'{{"reference": "{reference}", "image_id": "{image_id}"}}')
    assert push().failure() is None
    assert reference not in push.engine.stored[image_id].tags


def test_a_tag_that_another_process_moves_between_test_and_push_is_not_what_is_pushed(
    pushing: Callable[..., Pushing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pushed is the id that was tested, whatever the image's tags mean by then."""
    push, other = pushing(NAME), StoredImage("sha256:" + "f" * 64)
    tags = (push.images[0].tags[0], f"{push.pushes.registry.name}:{FIRST}")
    real = PushingEngine.inspect

    def moved(engine: PushingEngine, reference: str) -> StoredImage | None:
        engine.stored.setdefault(other.id, other)
        for tag in tags:
            engine.tag(other.id, tag)
        return real(engine, reference)

    monkeypatch.setattr(PushingEngine, "inspect", moved)
    (pushed,) = push().images
    assert pushed.record.image_id == id_of(NAME)
    assert push.engine.registry[tags[1]].id == pushed.record.digest


def test_an_image_that_the_registry_did_not_get_is_never_recorded(
    pushing: Callable[..., Pushing],
) -> None:
    """Another process tags its own image while the engine pushes: the digest there differs."""
    push = pushing(NAME)
    push.engine.then = lambda: place_image(push.pushes.registry, "theirs", FIRST)
    assert isinstance(push().failure(), ImgbuildError)
    assert {*push.pushes.registry.tagged} == {FIRST}


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"allowed": frozenset({"--allow-skipped pins"})}, "--allow-skipped pins"),
        ({"release": "20261332.1"}, "20261332.1"),
    ],
)
def test_options_are_judged_before_anything_is_asked(
    project: Project, images: dict[str, Image], options: dict[str, Any], fact: str
) -> None:
    with pytest.raises(InputError, match=fact):
        push_images(project, PushOptions((images[NAME],), "127.0.0.1:1/x", **options), print)


def test_a_push_needs_the_locks_of_its_images_and_a_plan_none(
    project: Project, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = "unix:///nonexistent/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setenv("IMGBUILD_SETTINGS", os.devnull)
    options = PushOptions((images[NAME],), "127.0.0.1:1/x")
    with image_locks([NAME], host, state_dir() / "locks"):
        with pytest.raises(MachineError, match="by another imgbuild"):
            push_images(project, options, print)
        with pytest.raises(MachineError) as caught:
            push_images(project, replace(options, plan=True), print)
    assert "by another imgbuild" not in str(caught.value)


@pytest.mark.parametrize("plan", [False, True])
def test_what_a_killed_test_left_is_removed_unless_it_is_a_plan(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, plan: bool
) -> None:
    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[object]:
        yield bench.opened()

    image_id = "sha256:" + "1" * 64
    bench.engine.stored[image_id] = StoredImage(image_id)
    label = {CONTAINER_LABEL: label_of(NAME)}
    bench.engine.start(image_id, command=["sleep"], labels=label, options=RunOptions())
    monkeypatch.setattr(push_module, "open_context", opened)
    monkeypatch.setattr(push_module, "connect", lambda *_: MemoryRegistry())
    with pytest.raises(CheckFailedError, match=NAME):
        push_images(bench.context.project, PushOptions(bench.context.images, plan=plan), print)
    assert bool(bench.engine.running) is plan
