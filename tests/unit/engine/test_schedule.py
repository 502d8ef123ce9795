"""Playing work forward."""

from typing import TYPE_CHECKING

from imgbuild.engine.schedule import Task, finish

if TYPE_CHECKING:
    from collections.abc import Hashable


def after(*keys: str) -> frozenset[str]:
    return frozenset(keys)


def test_what_waits_comes_one_after_another() -> None:
    assert finish({"a": Task(3), "b": Task(4, after("a"))}, 2) == 7


def test_what_does_not_wait_shares_the_processors() -> None:
    tasks: dict[Hashable, Task] = {key: Task(10) for key in "abcd"}
    assert finish(tasks, 2) == 20
    assert finish(tasks, 4) == 10


def test_limited_tasks_take_turns() -> None:
    tasks: dict[Hashable, Task] = {key: Task(10, limited=True) for key in "abcd"}
    assert finish(tasks, 4, 1) == 40
    assert finish(tasks, 4, 2) == 20


def test_what_is_done_is_not_waited_for_and_loops_end() -> None:
    assert finish({"a": Task(3, after("gone"))}, 1) == 3
    assert finish({"a": Task(3, after("b")), "b": Task(3, after("a"))}, 1) == 0
    assert finish({}, 1) == 0
    assert finish({"a": Task(0), "b": Task(0, after("a"))}, 1) == 0


def test_a_whole_matrix_is_played() -> None:
    tasks: dict[Hashable, Task] = {
        (image, step): Task(step + 1, frozenset({(image, step - 1)}))
        for image in range(40)
        for step in range(12)
    }
    assert round(finish(tasks, 2)) == 40 * 78 / 2
