"""What is kept of earlier builds: bounded, and never in the way."""

import json
import threading
from pathlib import Path

import pytest

from imgbuild.engine import learnt
from imgbuild.engine.learnt import Learnt, load_learnt, save_learnt, step_key, step_kind


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "durations.json"


def test_what_was_saved_is_known_by_its_median(file: Path) -> None:
    for seconds in (10.0, 11.0, 900.0):
        save_learnt(file, {"step:os RUN:1": seconds})
    known = load_learnt(file)
    assert known.expected("step:os RUN:1") == 11.0
    assert known.expected("unknown", "step:os RUN:1") == 11.0
    assert known.expected("unknown") is None


def test_only_the_last_runs_count(file: Path) -> None:
    for seconds in (1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0):
        save_learnt(file, {"a": seconds})
    assert load_learnt(file).runs["a"] == (9.0,) * 5


def test_like_steps_stand_in(file: Path) -> None:
    save_learnt(file, {step_key(f"[horovod 2/2] RUN {n}"): float(n) for n in (10, 20, 30)})
    known = load_learnt(file)
    assert known.like(step_kind("[horovod 2/2] RUN other")) == 20.0
    assert known.like(step_kind("[packages 2/2] RUN other")) is None


def test_a_step_has_a_key_of_its_own_in_one_image() -> None:
    step = "[horovod 2/2] RUN make"
    assert step_key(step, "a").startswith(step_key(step))
    assert step_key(step, "a") != step_key(step, "b")
    assert step_key(step).startswith("step:horovod RUN:")


def test_the_file_does_not_grow_for_ever(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt, "ENTRIES", 3)
    for number in range(5):
        save_learnt(file, {f"k{number}": 1.0, "kept": 1.0})
    assert set(load_learnt(file).runs) == {"k3", "k4", "kept"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 1}',
        '{"version": 2, "runs": {"a": [1]}}',
        '{"version": 1, "runs": {"a": 3}}',
        '{"version": 1, "runs": {"a": ["x"]}}',
        '{"version": 1, "runs": {"a": [NaN], "b": [-1], "c": [Infinity], "d": []}}',
        "[" * 100_000,
        "\x00",
    ],
)
def test_a_damaged_file_is_as_good_as_none(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    assert load_learnt(file) == Learnt()
    save_learnt(file, {"a": 2.0})
    assert load_learnt(file).expected("a") == 2.0


def test_bytes_that_are_no_text_are_as_good_as_none(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe\x00")
    assert load_learnt(file) == Learnt()


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    save_learnt(tmp_path / "state" / "durations.json", {"a": 1.0})
    assert load_learnt(tmp_path / "state" / "durations.json") == Learnt()


def test_nothing_learnt_writes_nothing(file: Path) -> None:
    save_learnt(file, {})
    assert not file.exists()


def test_builds_at_once_lose_nothing(file: Path) -> None:
    threads = [threading.Thread(target=save_learnt, args=(file, {f"k{n}": 1.0})) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(file.read_text())["runs"]) == 20
