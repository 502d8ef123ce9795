"""The engine's part of a push: a lent name, tries again, several images, an interrupt."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from fake_engine import FakeEngine

from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.publishing.content import Sender
from imgbuild.publishing.family import publish_family
from imgbuild.publishing.names import lent_name, take_back
from imgbuild.publishing.pushed_bytes import PushedBytes
from imgbuild.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from imgbuild.publishing.approved import Approved
    from imgbuild.publishing.publish import Published

ID, NAME, REFERENCE = f"sha256:{'a' * 64}", "tf-2.2-cpu-debian", "registry.test/app:one"


class Failing(FakeEngine):
    """An engine whose pushes end with these words, one after another, then well."""

    def __init__(self, *said: str) -> None:
        super().__init__([StoredImage(ID, ("imgbuild/tensorflow:2.2",))])
        self.said = [*said]

    def push(
        self, reference: str, hear: Callable[[Mapping[str, object]], None] | None = None
    ) -> None:
        if self.said:
            self.calls.append("push")
            raise CheckFailedError(f"The engine refuses: {self.said.pop(0)}.")
        super().push(reference, hear)


@dataclass
class Bench:
    """A sender, how long it waited, and what it told."""

    engine: FakeEngine
    folder: Path
    waits: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def send(self, attempts: int = 3) -> None:
        patience = RetryPolicy(attempts, 0.0)
        sender = Sender(
            self.engine,
            self.folder,
            patience,
            self.waits.append,
            lambda _, text: self.told.append(text),
            self.said.append,
        )
        sender.send(NAME, ID, REFERENCE)

    @property
    def names(self) -> tuple[str, ...]:
        return self.engine.stored[ID].tags


def test_a_name_is_lent_for_the_push_alone(tmp_path: Path) -> None:
    bench = Bench(Failing(), tmp_path)
    bench.send()
    assert REFERENCE in bench.engine.registry
    assert bench.names == ("imgbuild/tensorflow:2.2",)
    assert [*tmp_path.iterdir()] == []
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
    assert bench.names == ("imgbuild/tensorflow:2.2",)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "said",
    ["unauthorized: authentication required", "denied: no access", "no basic auth credentials"],
)
def test_a_refusal_is_final_and_names_the_login(tmp_path: Path, said: str) -> None:
    bench = Bench(Failing(said), tmp_path)
    with pytest.raises(CheckFailedError, match=r"docker login registry\.test"):
        bench.send()
    assert bench.waits == []
    assert bench.names == ("imgbuild/tensorflow:2.2",)


def test_an_unknown_authority_is_not_tried_again(tmp_path: Path) -> None:
    bench = Bench(Failing("x509: certificate signed by unknown authority"), tmp_path)
    with pytest.raises(CheckFailedError, match="x509"):
        bench.send()
    assert bench.waits == []


def test_a_name_that_was_there_stays(tmp_path: Path) -> None:
    engine = FakeEngine([StoredImage(ID, (REFERENCE,))])
    with lent_name(engine, NAME, ID, REFERENCE, tmp_path):
        assert [*tmp_path.iterdir()] == []
    assert engine.stored[ID].tags == (REFERENCE,)


@pytest.mark.parametrize(
    ("pushed", "listed"),
    [
        ("docker.io/user/app:1", "user/app:1"),
        ("docker.io/library/app:1", "app:1"),
        ("index.docker.io/user/app:1", "docker.io/user/app:1"),
    ],
)
def test_a_name_of_docker_hub_is_known_as_the_engine_lists_it(
    tmp_path: Path, pushed: str, listed: str
) -> None:
    engine = FakeEngine([StoredImage(ID, (listed,))])
    with lent_name(engine, NAME, ID, pushed, tmp_path):
        pass
    assert engine.stored[ID].tags == (listed,)
    assert engine.calls == ["inspect"]


def test_an_image_that_is_gone_gets_no_name(tmp_path: Path) -> None:
    with (
        pytest.raises(MachineError, match="was removed"),
        lent_name(FakeEngine(), NAME, ID, REFERENCE, tmp_path),
    ):
        pytest.fail("there is nothing to push")


def _killed(engine: FakeEngine, folder: Path) -> None:
    """Leave what a killed push leaves: the name, and the note of it."""
    with lent_name(engine, NAME, ID, REFERENCE, folder):
        (note,) = folder.iterdir()
        content = note.read_bytes()
    note.write_bytes(content)
    engine.tag(ID, REFERENCE)


def test_what_a_killed_push_lent_is_taken_back(tmp_path: Path) -> None:
    engine = FakeEngine([StoredImage(ID, ("mine:1",))])
    _killed(engine, tmp_path)
    take_back(engine, NAME, tmp_path)
    assert engine.stored[ID].tags == ("mine:1",)
    assert [*tmp_path.iterdir()] == []
    take_back(engine, NAME, tmp_path)


def test_a_name_of_another_image_by_now_is_left(tmp_path: Path) -> None:
    other = f"sha256:{'b' * 64}"
    engine = FakeEngine([StoredImage(ID, ("mine:1",)), StoredImage(other)])
    _killed(engine, tmp_path)
    engine.tag(other, REFERENCE)
    take_back(engine, NAME, tmp_path)
    assert engine.stored[other].tags == (REFERENCE,)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_a_damaged_note_is_nothing(tmp_path: Path, content: str) -> None:
    engine = FakeEngine([StoredImage(ID, ("mine:1",))])
    (tmp_path / f"{NAME}.json").write_text(content)
    take_back(engine, NAME, tmp_path)
    assert engine.stored[ID].tags == ("mine:1",)
    assert [*tmp_path.iterdir()] == []


def test_layers_are_counted_from_the_engines_messages() -> None:
    progress = PushedBytes()
    messages: list[dict[str, object]] = [
        {"status": "The push refers to repository [x]"},
        {"status": "Preparing", "id": "a", "progressDetail": {}},
        {"status": "Preparing", "id": "b", "progressDetail": {}},
        {"status": "Pushing", "id": "a", "progressDetail": {"current": 3_000_000, "total": 9}},
        {"status": "Layer already exists", "id": "b"},
        {"aux": {}},
    ]
    for message in messages:
        progress.hear(message)
    assert progress.text == "1 of 2 layers up, 3 MB sent"
    progress.hear({"status": "Pushed", "id": "a"})
    assert progress.text == "2 of 2 layers up, 3 MB sent"


@dataclass(frozen=True)
class Named:
    """What counts of an image here."""

    name: str


def _family(*names: str) -> list[Approved]:
    return [Named(name) for name in names]  # type: ignore[misc]


def test_one_that_fails_stops_no_other() -> None:
    def publish(image: Approved) -> Published:
        if image.name == "two":
            raise MachineError("away")
        return image.name  # type: ignore[return-value]

    family = publish_family(_family("one", "two", "three"), publish, 2, threading.Event())
    assert [str(one) for one in family.published] == ["one", "three"]
    assert {name: str(error) for name, error in family.errors.items()} == {"two": "away"}


def test_a_fault_of_the_program_is_not_hidden() -> None:
    def publish(image: Approved) -> Published:
        raise ZeroDivisionError(image.name)

    with pytest.raises(ZeroDivisionError):
        publish_family(_family("one"), publish, 1, threading.Event())


@pytest.mark.parametrize("names", [("listens",), ("listens", "silent", "never begun")])
def test_an_interrupt_ends_what_listens_and_leaves_what_does_not(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """A real signal: a join that it interrupts would take the threads for ended."""
    monkeypatch.setattr("imgbuild.publishing.family._END_SECONDS", 0.5)
    stop, ended, silent = threading.Event(), threading.Event(), threading.Event()

    def publish(image: Approved) -> Published:
        if image.name == "silent":
            silent.wait()
        stop.wait()
        time.sleep(0.2)  # as it takes to give a name back
        ended.set()
        raise RuntimeError(image.name)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt = threading.Timer(0.25, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            publish_family(_family(*names), publish, min(2, len(names)), stop)
        assert ended.is_set()
    finally:
        interrupt.join()
        signal.signal(signal.SIGINT, before)
        silent.set()
