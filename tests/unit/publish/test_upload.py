"""The engine's part of a push: a temporary tag, and further tries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.http import RetryPolicy
from imgbuild.publish.upload import SentBytes, Uploader, remove_left_tag

ID, NAME, REFERENCE = f"sha256:{'a' * 64}", "tf-2.2-cpu-debian", "registry.test/app:one"


class Failing(FakeEngine):
    """An engine whose pushes end with these words, one after another, then well."""

    def __init__(self, *said: str) -> None:
        super().__init__([StoredImage(ID, ("imgbuild/tensorflow:2.2",))])
        self.said = [*said]

    def push(self, reference: str, hear: Callable[[Mapping[str, object]], None] = print) -> None:
        if self.said:
            self.calls.append("push")
            raise CheckFailedError(f"The engine refuses: {self.said.pop(0)}.")
        super().push(reference, hear)


@dataclass
class Bench:
    """A sender, its pauses, and its progress."""

    engine: FakeEngine
    folder: Path
    waits: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def uploader(self) -> Uploader:
        return Uploader(
            self.engine,
            self.folder,
            RetryPolicy(3, 0.0),
            self.waits.append,
            lambda _, text: self.told.append(text),
            self.said.append,
        )

    def send(self) -> None:
        self.uploader().push(NAME, ID, REFERENCE)

    def notes(self) -> list[Path]:
        return [*self.folder.rglob("*.json")]

    @property
    def tags(self) -> tuple[str, ...]:
        return self.engine.stored[ID].tags


def test_the_tag_is_there_for_the_push_only(tmp_path: Path) -> None:
    bench = Bench(Failing(), tmp_path)
    bench.send()
    assert REFERENCE in bench.engine.registry
    assert bench.tags == ("imgbuild/tensorflow:2.2",)
    assert bench.notes() == []
    assert bench.told == ["0 of 1 layers up, 0 MB sent"]


def test_what_may_pass_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(Failing("connection reset by peer", "toomanyrequests: slow down"), tmp_path)
    bench.send()
    assert bench.waits == [0.0, 0.0]
    assert REFERENCE in bench.engine.registry
    assert "Again in 0.0 s (1 of 3 tries)." in bench.said[0]
    assert bench.said[0].startswith(f"{NAME}: ")


def test_in_the_end_it_is_given_up(tmp_path: Path) -> None:
    bench = Bench(Failing(*["received unexpected HTTP status: 500"] * 5), tmp_path)
    with pytest.raises(MachineError, match=r"\(3 tries\).*500.*run this again"):
        bench.send()
    assert bench.tags == ("imgbuild/tensorflow:2.2",)
    assert bench.notes() == []


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("unauthorized: authentication required", r"docker login registry\.test"),
        ("denied: no access", r"docker login registry\.test"),
        ("no basic auth credentials", r"docker login registry\.test"),
        ("x509: certificate signed by unknown authority", "x509"),
    ],
)
def test_a_refusal_is_final(tmp_path: Path, said: str, message: str) -> None:
    bench = Bench(Failing(said), tmp_path)
    with pytest.raises(CheckFailedError, match=message):
        bench.send()
    assert bench.waits == []
    assert bench.tags == ("imgbuild/tensorflow:2.2",)


@pytest.mark.parametrize(
    ("pushed", "listed"),
    [
        (REFERENCE, REFERENCE),
        ("docker.io/user/app:1", "user/app:1"),
        ("docker.io/library/app:1", "app:1"),
        ("index.docker.io/user/app:1", "docker.io/user/app:1"),
    ],
)
def test_a_tag_that_was_there_stays(tmp_path: Path, pushed: str, listed: str) -> None:
    engine = FakeEngine([StoredImage(ID, (listed,))])
    bench = Bench(engine, tmp_path)
    with bench.uploader()._temporary_tag(NAME, ID, pushed):
        assert bench.notes() == []
    assert engine.stored[ID].tags == (listed,)


def test_an_image_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="was removed"):
        Bench(FakeEngine(), tmp_path).send()


def _killed(bench: Bench) -> None:
    """Leave what a killed push leaves: the tag, and its note."""
    with bench.uploader()._temporary_tag(NAME, ID, REFERENCE):
        (note,) = bench.notes()
        content = note.read_bytes()
    note.write_bytes(content)
    bench.engine.tag(ID, REFERENCE)


def test_the_tag_of_a_killed_push_is_removed(tmp_path: Path) -> None:
    bench = Bench(FakeEngine([StoredImage(ID, ("mine:1",))]), tmp_path)
    _killed(bench)
    for _ in range(2):
        remove_left_tag(bench.engine, bench.folder, NAME)
        assert bench.tags == ("mine:1",)
        assert bench.notes() == []


def test_a_tag_of_another_image_by_now_is_left(tmp_path: Path) -> None:
    other = f"sha256:{'b' * 64}"
    bench = Bench(FakeEngine([StoredImage(ID, ("mine:1",)), StoredImage(other)]), tmp_path)
    _killed(bench)
    bench.engine.tag(other, REFERENCE)
    remove_left_tag(bench.engine, bench.folder, NAME)
    assert bench.engine.stored[other].tags == (REFERENCE,)
    assert bench.notes() == []


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_a_damaged_note_is_removed(tmp_path: Path, content: str) -> None:
    bench = Bench(FakeEngine([StoredImage(ID, ("mine:1",))]), tmp_path)
    _killed(bench)
    bench.notes()[0].write_text(content)
    remove_left_tag(bench.engine, bench.folder, NAME)
    assert bench.notes() == []


def test_layers_are_counted_from_the_engines_messages() -> None:
    progress = SentBytes()
    messages: list[dict[str, object]] = [
        {"status": "The push refers to repository [x]"},
        {"status": "Preparing", "id": "a", "progressDetail": {}},
        {"status": "Preparing", "id": "b", "progressDetail": {}},
        {"status": "Pushing", "id": "a", "progressDetail": {"current": 3_000_000, "total": 9}},
        {"status": "Layer already exists", "id": "b"},
        {"aux": {}},
    ]
    for message in messages:
        progress.add(message)
    assert progress.text == "1 of 2 layers up, 3 MB sent"
    progress.add({"status": "Pushed", "id": "a"})
    assert progress.text == "2 of 2 layers up, 3 MB sent"
