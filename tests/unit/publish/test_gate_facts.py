"""What the gate and a push promise, each where a single slip would publish something else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench import Bench
from fake_engine import FakeEngine
from memory_registry import MemoryRegistry
from published_images import publish
from test_contents import contents
from test_push import FIRST, MOVING, NAME, SECOND, PushingEngine, documents, id_of, place_image
from test_push import Bench as Pushes
from test_push_candidate import ID, KEYS, PASSED, Judged, _document, _judged

from imgbuild.build.context import image_locks
from imgbuild.build.display import BuildDisplay
from imgbuild.engine.types import RunOptions, StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError, InputError, MachineError
from imgbuild.matrix.images import Image
from imgbuild.project import Project, state_dir
from imgbuild.publish import push as push_module
from imgbuild.publish.candidate import approve, check_allowed
from imgbuild.publish.contents import check_contents
from imgbuild.publish.push import PushedImage, PushOptions, PushResult, push_all, push_images
from imgbuild.publish.record import read_published
from imgbuild.publish.upload import note_of
from imgbuild.suites.catalog import read_suites
from imgbuild.suites.container import CONTAINER_LABEL, label_of


@pytest.fixture
def good(images: dict[str, Image], tmp_path: Path) -> Judged:
    """Return what may be published."""
    return _judged(images[NAME], KEYS, _document(tmp_path, *PASSED))


@pytest.mark.parametrize("change", [{"key": None}, {"key": ""}, {"found": ""}, {"found": "a/b"}])
def test_a_verdict_proves_what_it_says_of_itself(good: Judged, change: dict[str, Any]) -> None:
    assert good.refusals() == []
    entry = {**good.report["pins"], **change}
    assert len(replace(good, report={**good.report, "pins": entry}).refusals()) == 1


@pytest.mark.parametrize("lacking", ["key", "found"])
def test_a_verdict_that_lacks_a_word_proves_nothing(good: Judged, lacking: str) -> None:
    entry = {key: value for key, value in good.report["pins"].items() if key != lacking}
    assert len(replace(good, report={**good.report, "pins": entry}).refusals()) == 1


def test_an_image_that_does_not_say_its_inputs_is_none_of_this_checkout(good: Judged) -> None:
    bare = replace(good, stored=replace(good.stored, labels={}))
    assert bare.refusals("--allow-substituted") == [
        "the engine's image has other inputs than this checkout: run `imgbuild build`"
    ]


def test_every_suite_but_one_must_pass(project: Project) -> None:
    for suite in read_suites(project.suites):
        if suite.name != "gpu_runs":
            with pytest.raises(InputError):
                check_allowed([f"--allow-skipped {suite.name}"])


def test_only_suites_that_it_had_to_pass_are_published_with_an_image(bench: Bench) -> None:
    bench.build()
    for item in bench.plan():
        bench.context.store.import_results(item.image_id or "", {"forged": {"verdict": "passed"}})
    for one in approve(bench.opened(), {"--allow-substituted"}):
        assert one.report.keys() == bench.context.suite_keys[one.name].keys()


@pytest.mark.parametrize(
    ("name", "change"), [(NAME, {"cuda": ("10.1.243",)}), ("tf-2.2-gpu-ubuntu", {"cuda": ()})]
)
def test_an_image_with_another_cuda_gets_no_tag(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch, name: str, change: dict[str, Any]
) -> None:
    image = images[name]
    read = replace(contents(image), **change)
    monkeypatch.setattr("imgbuild.publish.contents.read_contents", lambda *_: read)
    with pytest.raises(CheckFailedError, match="cuda: planned"):
        check_contents(image, ID, FakeEngine())


def test_what_only_a_moving_tag_says_is_compared_too(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = images[NAME].matrix.tags.model_copy(
        update={"immutable": ("minor", "release"), "moving": (("minor", "python"),)}
    )
    image = replace(images[NAME], matrix=images[NAME].matrix.model_copy(update={"tags": scheme}))
    read = replace(contents(images[NAME]), python="3.7.9")
    monkeypatch.setattr("imgbuild.publish.contents.read_contents", lambda *_: read)
    with pytest.raises(CheckFailedError, match="python: planned py36, read py37"):
        check_contents(image, ID, FakeEngine())


@pytest.fixture
def pushes(images: dict[str, Image]) -> Pushes:
    return Pushes(images[NAME])


def _pushed(
    pushes: Pushes, folder: Path, monkeypatch: pytest.MonkeyPatch, *, left: bool = False
) -> tuple[PushingEngine, PushResult]:
    """Push one image; with ``left``, after a push that was killed while the image had its tag."""
    image_id = pushes.registry.add_image("one").digest
    pushes.registry.tagged.clear()
    engine = PushingEngine([image_id], pushes.registry, lost="")
    if left:
        reference = f"{pushes.registry.name}:killed"
        engine.tag(image_id, reference)
        note = note_of(folder, engine, NAME)
        note.parent.mkdir(parents=True)
        note.write_text(f'{{"reference": "{reference}", "image_id": "{image_id}"}}')
    monkeypatch.setattr(push_module, "Engine", lambda _: engine)
    monkeypatch.setattr(push_module, "predicates", documents)
    context: Any = SimpleNamespace(display=BuildDisplay([NAME]), host=None, state=folder)
    candidates = [pushes.candidate("one", image_id)]
    return engine, push_all(pushes.session(), candidates, context, 1)


def test_nothing_of_an_image_that_is_not_what_its_tag_says_is_sent(
    pushes: Pushes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*_: object) -> None:
        raise CheckFailedError("another Python")

    monkeypatch.setattr(push_module, "check_contents", differs)
    engine, result = _pushed(pushes, tmp_path, monkeypatch)
    assert "another Python" in str(result.failure())
    assert "push" not in engine.calls
    assert pushes.registry.tagged == {}


def test_a_push_removes_the_tag_of_one_that_was_killed(
    pushes: Pushes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_module, "check_contents", lambda *_: None)
    engine, result = _pushed(pushes, tmp_path, monkeypatch, left=True)
    assert result.failure() is None
    assert not [tag for one in engine.stored.values() for tag in one.tags if "killed" in tag]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"allowed": frozenset({"--allow-skipped pins"})}, "cannot be left out"),
        ({"release": "20261332.1"}, "is no release"),
        ({"release": "20261120.0"}, "is no release"),
    ],
)
def test_options_are_judged_before_anything_is_asked(
    project: Project, images: dict[str, Image], options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
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

    bench.engine.stored[ID] = StoredImage(ID)
    label = {CONTAINER_LABEL: label_of(NAME)}
    bench.engine.start(ID, command=["sleep"], labels=label, options=RunOptions())
    monkeypatch.setattr(push_module, "open_context", opened)
    monkeypatch.setattr(push_module, "connect", lambda *_: MemoryRegistry())
    with pytest.raises(CheckFailedError, match="is not published"):
        push_images(bench.context.project, PushOptions(bench.context.images, plan=plan), print)
    assert bool(bench.engine.running) is plan


def test_a_record_keeps_the_tag_that_was_removed_for_its_image(pushes: Pushes) -> None:
    """Who removes an immutable tag does not make room for another image under it."""
    pushes.push("other", release="20261120.1")
    del pushes.registry.tagged[FIRST]
    with pytest.raises(CheckFailedError, match="for another image"):
        pushes.push("one", release="20261120.1")
    assert FIRST not in pushes.registry.tagged


def test_of_one_second_the_later_release_keeps_the_moving_tags(pushes: Pushes) -> None:
    first = pushes.push("one").record
    second = pushes.push("two").record
    pushes.put(replace(second, published=first.published))
    assert pushes.push("one").kept == tuple(f"{tag} stays at {SECOND}" for tag in MOVING)


def test_moving_tags_that_somebody_moved_back_come_to_the_later_image_again(pushes: Pushes) -> None:
    first = pushes.push("one").record
    second = pushes.push("two").record
    pushes.registry.tagged |= dict.fromkeys(MOVING, first.digest)
    assert pushes.push("two").moves == MOVING
    assert {pushes.registry.tagged[tag] for tag in MOVING} == {second.digest}


def test_a_record_whose_tag_is_at_another_image_is_not_whole() -> None:
    registry = MemoryRegistry()
    record = publish(registry, "1.0")
    assert read_published(registry).whole == (record,)
    place_image(registry, "other", "1.0")
    assert read_published(registry).whole == ()


def test_a_tag_that_another_process_moves_between_test_and_push_is_not_what_is_pushed(
    pushes: Pushes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pushed is the id that was tested, whatever the image's names mean by then."""
    monkeypatch.setattr(push_module, "check_contents", lambda *_: None)
    other = StoredImage("sha256:" + "f" * 64)
    tags = (pushes.image.tags[0], f"{pushes.registry.name}:{FIRST}")
    real = PushingEngine.inspect

    def moved(engine: PushingEngine, reference: str) -> StoredImage | None:
        engine.stored.setdefault(other.id, other)
        for tag in tags:
            engine.tag(other.id, tag)
        return real(engine, reference)

    monkeypatch.setattr(PushingEngine, "inspect", moved)
    engine, result = _pushed(pushes, tmp_path, monkeypatch)
    assert result.failure() is None
    (pushed,) = result.images
    assert pushed.record.image_id == id_of("one")
    assert engine.registry[tags[1]].id == pushed.record.digest


def test_an_image_that_the_registry_did_not_get_is_never_recorded(
    pushes: Pushes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process tags its own image while the engine pushes: the digest there differs."""
    monkeypatch.setattr(push_module, "check_contents", lambda *_: None)
    real = PushingEngine.push

    def stolen(engine: PushingEngine, reference: str, *rest: Any) -> None:
        real(engine, reference, *rest)
        place_image(pushes.registry, "theirs", FIRST)

    monkeypatch.setattr(PushingEngine, "push", stolen)
    _, result = _pushed(pushes, tmp_path, monkeypatch)
    assert isinstance(result.failure(), ImgbuildError)
    assert {*pushes.registry.tagged} == {FIRST}


@pytest.mark.parametrize("days", [-1, 365])
def test_a_clock_that_was_set_leaves_the_moving_tags_at_the_latest_image(
    pushes: Pushes, days: int
) -> None:
    """Back by a day it refuses; forward by a year it is the others that do, until it is named."""
    right = datetime(2026, 11, 20, 12, tzinfo=UTC)
    wrong = right + timedelta(days=days)
    first, second = (right, wrong) if days < 0 else (wrong, right)

    def pushed(content: str, now: datetime, release: str | None = None) -> PushedImage:
        session = replace(pushes.session(release), now=lambda: now)
        return session.push(
            pushes.candidate(content), lambda tag: pushes.upload(content, tag), documents
        )

    one = pushed("one", first).record
    with pytest.raises(CheckFailedError, match="Set the clock"):
        pushed("two", second)
    assert {pushes.registry.tagged[tag] for tag in MOVING} == {one.digest}
    assert pushed("one", second).steps == (), "what is there is known by its id"
    assert pushed("two", second, f"{first:%Y%m%d}.2").moves == MOVING
