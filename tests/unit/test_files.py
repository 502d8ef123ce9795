"""Temporary folders go with their process, or with the next start."""

from pathlib import Path

import pytest

from imgbuild.errors import MachineError
from imgbuild.files import work_folder


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "imgbuild" / "work"


def test_it_goes_with_the_block_even_by_an_interrupt(state: Path) -> None:
    with pytest.raises(KeyboardInterrupt), work_folder("x"):
        raise KeyboardInterrupt
    assert list(state.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next(state: Path) -> None:
    left = state / "999999999-bake-abc"
    left.mkdir(parents=True)
    with work_folder("x"):
        assert not left.exists()


def test_that_of_a_living_process_stays(state: Path) -> None:
    other = state / "1-bake-abc"
    other.mkdir(parents=True)
    with work_folder("x"):
        assert other.exists()


def test_without_room_it_says_so(state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_text("a file in its place")
    with pytest.raises(MachineError, match=r"Cannot work in .*XDG_STATE_HOME"), work_folder("x"):
        pass
