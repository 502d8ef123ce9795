"""A push from the options to the engine: each place where a slip would publish something else."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from imgbuild.build.context import image_locks
from imgbuild.build.display import BuildDisplay
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.events import ImageState
from imgbuild.core.project import Project, SettingsOptions
from imgbuild.core.user_folders import state_dir
from imgbuild.engine.types import AMD64, ARM64, StoredImage
from imgbuild.matrix.images import Image, for_other_architecture, planned_tags
from imgbuild.publish import push as push_module
from imgbuild.publish.push import PushOptions, PushResult, push_all, push_images
from imgbuild.publish.release_index import read_index
from imgbuild.suites.container import CONTAINER_LABEL, make_label
from support.bench import Bench
from support.fake_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.push_bench import MOVING, NAME, PushBench, documents

NAMES = (NAME, "tf-2.1-cpu-debian", "tf-2.0-cpu-debian")


class PushingEngine(FakeEngine):
    """An engine whose pushes arrive in a registry, but for that of the ``lost`` image."""

    def __init__(self, ids: Sequence[str], registry: MemoryRegistry, lost: str) -> None:
        super().__init__([StoredImage(one, (f"mine:{one[-12:]}",)) for one in ids])
        self.target, self.lost = registry, lost

    def push(
        self, reference: str, on_message: Callable[[Mapping[str, object]], None] = lambda _: None
    ) -> None:
        super().push(reference, on_message)
        image_id = self.registry[reference].id
        if image_id == self.lost:
            raise CheckFailedError("The engine refused: connection reset by peer.")
        self.target.tagged[reference.removeprefix(f"{self.target.name}:")] = image_id
        on_message({"status": f"x: digest: {image_id} size: 855"})


def test_a_failed_image_stops_no_other(
    images: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In all threads, from the engine to the moving tags; the engine keeps no tag of it.

    Of an image that is not what its tag says, nothing is sent.
    """
    pushes, shown = PushBench(images[NAME]), list[ImageState]()
    good, lost, wrong = ids = [pushes.registry.add_image(name).digest for name in NAMES]
    pushes.registry.tagged.clear()
    engine = PushingEngine(ids, pushes.registry, lost)

    def check_contents(_: object, image_id: str, __: object) -> None:
        if image_id == wrong:
            raise CheckFailedError("another Python")

    monkeypatch.setattr(push_module, "Engine", lambda _: engine)
    monkeypatch.setattr(push_module, "make_predicates", documents)
    monkeypatch.setattr(push_module, "check_contents", check_contents)
    display = BuildDisplay(NAMES)
    display.show_state = shown.append  # type: ignore[method-assign, assignment]
    context: Any = SimpleNamespace(engine=engine, state=tmp_path)
    candidates = [
        replace(pushes.candidate(name, image_id), image=images[name])
        for name, image_id in zip(NAMES, ids, strict=True)
    ]
    result = push_all(pushes.session(), candidates, context, display, jobs=2)
    (pushed,) = result.images
    assert (pushed.record.image, pushed.steps[0]) == (NAME, "push")
    assert pushes.digests(*MOVING) == {good}
    kinds = {name: type(error) for name, error in result.errors.items()}
    assert kinds == {NAMES[1]: MachineError, NAMES[2]: CheckFailedError}
    assert wrong not in {one.id for one in engine.registry.values()}
    assert {event.image for event in shown if event.quiet and event.text} == {*NAMES[:2]}
    assert all(one.tags == (f"mine:{one.id[-12:]}",) for one in engine.stored.values())
    assert not [*tmp_path.rglob("*.json")]
    states = [(event.image, event.state) for event in shown if not event.quiet]
    for name, *expected in (
        (NAMES[0], "checking", "pushing", "published"),
        (NAMES[1], "checking", "pushing", "failed"),
        (NAMES[2], "checking", "failed"),
    ):
        assert [state for image, state in states if image == name] == expected


def test_image_that_did_not_change_joins_the_release_of_the_other_platform(
    images: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one push of both; only the image for arm64, which comes second, has changed."""
    own = images["tf-2.18-cpu-debian"]
    other = for_other_architecture(own)
    assert other
    pushes = PushBench(own)
    first, second, changed = ids = [
        pushes.registry.add_image(name).digest for name in ("amd64", "arm64", "changed")
    ]
    pushes.registry.tagged.clear()
    engine = PushingEngine(ids, pushes.registry, "")
    monkeypatch.setattr(push_module, "Engine", lambda _: engine)
    monkeypatch.setattr(push_module, "make_predicates", documents)
    monkeypatch.setattr(push_module, "check_contents", lambda *_: None)
    context: Any = SimpleNamespace(engine=engine, state=tmp_path)

    def push_both(arm64: str) -> PushResult:
        candidates = [
            pushes.candidate("amd64", first),
            replace(
                pushes.candidate("arm64", arm64),
                image=other,
                stored=StoredImage(arm64, platform=ARM64),
            ),
        ]
        display = BuildDisplay([candidate.name for candidate in candidates])
        display.show_state = lambda _: None  # type: ignore[method-assign, assignment]
        return push_all(pushes.session(), candidates, context, display, jobs=2)

    (tag, *_) = planned_tags(own).moving
    # The image for arm64 joins the release of this push, not the one before it.
    pushes.push("earlier", now=datetime(2026, 11, 20, 1, tzinfo=UTC))
    for arm64, release in ((second, "20261120.2"), (changed, "20261120.3")):
        result = push_both(arm64)
        assert result.errors == {}
        assert {image.record.release for image in result.images} == {release}
        manifest = pushes.registry.manifest(tag)
        assert manifest
        assert read_index(manifest) == {AMD64: first, ARM64: arm64}


def test_it_is_the_machines_error_only_if_no_image_is_at_fault() -> None:
    machine, image = MachineError("no registry"), CheckFailedError("moved by someone else")
    assert PushResult("x", (), {}).failure() is None
    assert isinstance(PushResult("x", (), {"a": machine, "b": machine}).failure(), MachineError)
    several = PushResult("x", (), {"a": machine, "b": image, "c": machine}).failure()
    assert isinstance(several, CheckFailedError)
    assert str(several).splitlines() == [f"a, c: {machine}", f"b: {image}"]


def test_a_push_needs_the_locks_of_its_images_and_a_plan_none(
    project: Project, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = "unix:///nonexistent/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", host)
    project = Project(project.root, SettingsOptions(Path(os.devnull)))
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
    label = {CONTAINER_LABEL: make_label(NAME)}
    bench.engine.start(image_id, command=["sleep"], labels=label)
    monkeypatch.setattr(push_module, "open_context", opened)
    monkeypatch.setattr(push_module, "connect", lambda *_: MemoryRegistry())
    with pytest.raises(CheckFailedError, match=NAME):
        push_images(bench.context.project, PushOptions(bench.context.images, plan=plan), print)
    assert bool(bench.engine.running) is plan


def test_push_of_an_extension_needs_its_lock(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """`imgbuild extend` may make the image anew at this moment."""

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[object]:
        yield bench.opened()

    monkeypatch.setattr(push_module, "open_context", opened)
    monkeypatch.setattr(push_module, "connect", lambda *_: MemoryRegistry("r.test/team/train"))
    options = PushOptions(bench.context.images[:1], extended=("me/train:1",))
    with (
        image_locks(["me-train-1"], None, bench.context.state / "locks"),
        pytest.raises(MachineError, match="by another imgbuild"),
    ):
        push_images(bench.context.project, options, print)
    with pytest.raises(InputError, match="me/train:1"):  # which the engine lacks
        push_images(bench.context.project, options, print)
