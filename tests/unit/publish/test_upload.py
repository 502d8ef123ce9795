"""The engine's part of a push: a temporary tag, and further tries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from memory_registry import MemoryRegistry

from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.publish.upload import Uploader, note_of, remove_left_tag

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
    """An engine, a registry with three tries, and the progress."""

    engine: FakeEngine
    folder: Path
    told: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def note(self) -> Path:
        return note_of(self.folder, self.engine, NAME)

    def uploader(self) -> Uploader:
        registry = MemoryRegistry("registry.test/app", log=self.said.append)
        return Uploader(self.engine, registry, self.note, self.told.append)

    def send(self) -> None:
        self.uploader().push(ID, "one")

    @property
    def tags(self) -> tuple[str, ...]:
        return self.engine.stored[ID].tags

    def nothing_is_left(self) -> None:
        assert self.tags == ("imgbuild/tensorflow:2.2",)
        assert not self.note.exists()


def test_the_tag_is_there_for_the_push_only_and_what_may_pass_is_tried_again(
    tmp_path: Path,
) -> None:
    bench = Bench(Failing("connection reset by peer", "toomanyrequests: slow down"), tmp_path)
    bench.send()
    assert REFERENCE in bench.engine.registry
    assert len(bench.said) == 2
    assert bench.told == ["0 of 1 layers up, 0 MB sent"]
    bench.nothing_is_left()


@pytest.mark.parametrize(
    ("said", "error", "fact"),
    [
        (["received unexpected HTTP status: 500"] * 5, MachineError, r"500 \(3 tries\)"),
        *(
            ([refusal], CheckFailedError, r"docker login registry\.test")
            for refusal in (
                "unauthorized: required",
                "denied: no access",
                "no basic auth credentials",
            )
        ),
        (["x509: certificate signed by unknown authority"], CheckFailedError, "x509"),
    ],
)
def test_in_the_end_it_is_given_up_and_a_refusal_is_final(
    tmp_path: Path, said: list[str], error: type[Exception], fact: str
) -> None:
    bench = Bench(Failing(*said), tmp_path)
    with pytest.raises(error, match=fact):
        bench.send()
    assert len(bench.said) == (2 if len(said) > 1 else 0)
    bench.nothing_is_left()


def test_a_tag_that_was_there_stays(tmp_path: Path) -> None:
    engine = FakeEngine([StoredImage(ID, (REFERENCE,))])
    bench = Bench(engine, tmp_path)
    with bench.uploader()._temporary_tag(ID, REFERENCE):
        assert not bench.note.exists()
    assert engine.stored[ID].tags == (REFERENCE,)


def _killed(bench: Bench) -> None:
    """Leave what a killed push leaves: the tag, and its note."""
    with bench.uploader()._temporary_tag(ID, REFERENCE):
        content = bench.note.read_bytes()
    bench.note.write_bytes(content)
    bench.engine.tag(ID, REFERENCE)


@pytest.mark.parametrize("content", [None, "", "[]", "{}"])
def test_the_tag_of_a_killed_push_is_removed_unless_its_note_is_damaged(
    tmp_path: Path, content: str | None
) -> None:
    bench = Bench(FakeEngine([StoredImage(ID, ("mine:1",))]), tmp_path)
    _killed(bench)
    if content is not None:
        bench.note.write_text(content)
    for _ in range(2):
        remove_left_tag(bench.engine, bench.note)
        assert bench.tags == (("mine:1",) if content is None else ("mine:1", REFERENCE))
        assert not bench.note.exists()


def test_a_tag_of_another_image_by_now_is_left(tmp_path: Path) -> None:
    other = f"sha256:{'b' * 64}"
    bench = Bench(FakeEngine([StoredImage(ID, ("mine:1",)), StoredImage(other)]), tmp_path)
    _killed(bench)
    bench.engine.tag(other, REFERENCE)
    remove_left_tag(bench.engine, bench.note)
    assert bench.engine.stored[other].tags == (REFERENCE,)
    assert not bench.note.exists()
