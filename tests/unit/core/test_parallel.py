"""Work in parallel threads: results, failures, and how it ends early."""

import threading
import time

import pytest

from imgbuild.core.parallel import as_completed, background, in_parallel


def test_results_are_in_order_and_no_more_than_the_workers_run_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def doubled(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02 / number)
        with lock:
            running -= 1
        return number * 2

    assert in_parallel(doubled, range(1, 13), 3) == [*range(2, 25, 2)]
    assert most == 3
    assert in_parallel(str, [], 4) == []


def test_the_first_exception_is_raised_and_ends_the_rest() -> None:
    begun, stopped = [], threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("no")
        stopped.wait(5)

    with pytest.raises(ValueError, match="no"):
        in_parallel(work, range(50), 2, stop=stopped.set, grace=5)
    assert stopped.is_set()
    assert len(begun) <= 3


def test_no_further_item_begins_after_a_result_that_ends_it() -> None:
    results = list(as_completed(lambda n: n, range(10), 1, goes_on=lambda n: n < 2))
    assert results == [(0, 0), (1, 1), (2, 2)]


def test_whoever_leaves_early_waits_for_what_runs() -> None:
    stopped, ended = threading.Event(), threading.Event()

    def work(number: int) -> int:
        if number:
            stopped.wait(5)
            ended.set()
        return number

    for _ in as_completed(work, [0, 1], 2, stop=stopped.set, grace=None):
        break
    assert ended.wait(5)


def test_a_function_that_hangs_is_left_behind() -> None:
    event = threading.Event()
    with pytest.raises(TimeoutError):
        background(event.wait).result(0.01)
    event.set()
