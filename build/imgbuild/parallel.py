"""The same question about many things at once; an interrupt waits for none of them."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Sequence[T], workers: int) -> list[R]:
    """Return what ``function`` returns for each item, in the order of the items.

    The first exception of any of them is raised, and what has not begun by then never begins. The
    threads are daemons: Ctrl-C ends the program at once, whatever they wait for.
    """
    waiting: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, R | BaseException]] = queue.SimpleQueue()
    for numbered in enumerate(items):
        waiting.put(numbered)
    stop = threading.Event()
    for _ in range(min(workers, len(items))):
        threading.Thread(target=_work, args=(function, waiting, done, stop), daemon=True).start()
    try:
        return _collected(done, len(items))
    finally:
        stop.set()


def _work(
    function: Callable[[T], R],
    waiting: "queue.SimpleQueue[tuple[int, T]]",
    done: "queue.SimpleQueue[tuple[int, R | BaseException]]",
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            number, item = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            done.put((number, function(item)))
        except BaseException as error:  # noqa: BLE001 - handed on to who asked
            done.put((number, error))


def _collected(done: "queue.SimpleQueue[tuple[int, R | BaseException]]", expected: int) -> list[R]:
    results: dict[int, R] = {}
    while len(results) < expected:
        number, result = done.get()
        if isinstance(result, BaseException):
            raise result
        results[number] = result
    return [results[number] for number in range(expected)]
