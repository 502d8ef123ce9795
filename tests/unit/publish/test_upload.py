"""The engine's part of a push: a temporary tag, and further tries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.engine.types import StoredImage
from imgbuild.publish.upload import note_path, remove_left_tag, upload
from support.fake_engine import FakeEngine
from support.memory_registry import MemoryRegistry

ID, NAME, REFERENCE = f"sha256:{'a' * 64}", "tf-2.2-cpu-debian", "registry.test/app:one"
OWN, LOGIN = "imgbuild/tensorflow:2.2", r"docker login registry\.test"


class Failing(FakeEngine):
    """An engine whose pushes end with these words, one after another, then well.

    ``then`` is done before a push.
    """

    def __init__(self, *said: str) -> None:
        super().__init__([StoredImage(ID, (OWN,))])
        self.said = [*said]
        self.then: Callable[[], object] = lambda: None

    def push(self, reference: str, hear: Callable[[Mapping[str, object]], None] = print) -> None:
        self.then()
        if self.said:
            raise CheckFailedError(f"The engine refused: {self.said.pop(0)}.")
        super().push(reference, hear)


@dataclass
class Bench:
    """An engine, a registry with three tries, and the progress."""

    engine: Failing
    folder: Path
    told: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def note(self) -> Path:
        return note_path(self.folder, self.engine, NAME)

    def send(self) -> str:
        registry = MemoryRegistry("registry.test/app", log=self.said.append)
        return upload(
            ID,
            "one",
            engine=self.engine,
            registry=registry,
            note=self.note,
            progress=self.told.append,
        )

    @property
    def tags(self) -> tuple[str, ...]:
        return self.engine.stored[ID].tags

    def nothing_is_left(self) -> None:
        assert self.tags == (OWN,)
        assert not self.note.exists()


@pytest.fixture
def killed(tmp_path: Path) -> Bench:
    """Return what a killed push leaves: the tag, and its note."""
    bench, notes = Bench(Failing(), tmp_path), list[bytes]()
    bench.engine.then = lambda: notes.append(bench.note.read_bytes())
    bench.send()
    bench.note.write_bytes(notes[0])
    bench.engine.tag(ID, REFERENCE)
    return bench


def test_upload_retries_and_removes_its_tag(
    tmp_path: Path,
) -> None:
    bench = Bench(Failing("connection reset by peer", "toomanyrequests: slow down"), tmp_path)
    bench.send()
    assert REFERENCE in bench.engine.registry
    assert len(bench.said) == 2
    assert {*bench.told} == {"0 of 1 layers up, 0 MB sent"}
    bench.nothing_is_left()


@pytest.mark.parametrize(
    ("said", "error", "fact"),
    [
        (["received unexpected HTTP status: 500"] * 5, MachineError, r"500 \(3 tries\)"),
        (["unauthorized: required"], CheckFailedError, LOGIN),
        (["denied: no access"], CheckFailedError, LOGIN),
        (["no basic auth credentials"], CheckFailedError, LOGIN),
        (["x509: certificate signed by unknown authority"], CheckFailedError, "x509"),
    ],
    ids=["500", "unauthorized", "denied", "no login", "x509"],
)
def test_in_the_end_it_is_given_up_and_a_refusal_is_final(
    tmp_path: Path, said: list[str], error: type[Exception], fact: str
) -> None:
    bench = Bench(Failing(*said), tmp_path)
    with pytest.raises(error, match=fact):
        bench.send()
    assert len(bench.said) == (2 if len(said) > 1 else 0)
    bench.nothing_is_left()


def test_push_returns_the_engines_digest(tmp_path: Path) -> None:
    """Both image stores end a push with such a message; a layer cannot look like it."""
    assert Bench(Failing(), tmp_path).send() == ID
    other, talking = f"sha256:{'b' * 64}", Bench(Failing(), tmp_path)

    def push(_: str, hear: Callable[[Mapping[str, object]], None]) -> None:
        hear({"status": f"2.2-cpu: digest: {ID} size: 855"})
        for text in ("Pushed", f"denied: digest: {other}", f"x y: digest: {other} size: 1", other):
            hear({"status": text, "id": "layer"})

    talking.engine.push = push  # type: ignore[method-assign, assignment]
    assert talking.send() == ID
    silent = Bench(Failing(), tmp_path)
    silent.engine.push = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(MachineError, match="digest"):
        silent.send()


def test_a_tag_that_was_there_stays(tmp_path: Path) -> None:
    bench = Bench(Failing(), tmp_path)
    bench.engine.tag(ID, REFERENCE)
    bench.send()
    assert REFERENCE in bench.tags


@pytest.mark.parametrize("content", [None, "", "[]", "{}"])
def test_tag_of_a_killed_push_is_removed_by_its_note(killed: Bench, content: str | None) -> None:
    if content is not None:
        killed.note.write_text(content)
    for _ in range(2):
        remove_left_tag(killed.engine, killed.note)
        assert killed.tags == ((OWN,) if content is None else (OWN, REFERENCE))
        assert not killed.note.exists()


def test_a_tag_of_another_image_by_now_is_left(killed: Bench) -> None:
    other = f"sha256:{'b' * 64}"
    killed.engine.stored[other] = StoredImage(other)
    killed.engine.tag(other, REFERENCE)
    remove_left_tag(killed.engine, killed.note)
    assert killed.engine.stored[other].tags == (REFERENCE,)
    assert not killed.note.exists()
