"""Run functions in parallel threads that do not delay Ctrl-C."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def background(function: Callable[[], R], future: Future[R] | None = None) -> Future[R]:
    """Start ``function`` in a daemon thread and return its future.

    ``result(seconds)`` raises TimeoutError if the function hangs. A thread that is stuck in a
    system call (a name server, NFS) does not delay the exit of the program. The caller can pass a
    ``future``, and can cancel it before the function starts.
    """
    own: Future[R] = future or Future()

    def work() -> None:
        if own.set_running_or_notify_cancel():
            try:
                own.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised by result()
                own.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return own


def as_completed(  # noqa: PLR0913 - how it ends early
    function: Callable[[T], R],
    items: Sequence[T],
    workers: int,
    *,
    goes_on: Callable[[R], bool] = lambda _: True,
    stop: Callable[[], None] = lambda: None,
    grace: float | None = 0.0,
) -> Iterator[tuple[T, R]]:
    """Yield each item with its result as soon as the result is ready.

    An exception of a function is raised here. After it, or after a result for which ``goes_on`` is
    false, no further item starts. If functions still run when this generator ends early, it calls
    ``stop`` and waits for them up to ``grace`` seconds (None: without limit).
    """
    waiting = [*reversed(items)]
    running: dict[Future[R], T] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                item, future = waiting.pop(), Future[R]()
                # Register the future before it starts, because an interrupt may come in between.
                running[future] = item
                background(partial(function, item), future)
            done = wait(running, return_when=FIRST_COMPLETED).done
            results = [(running.pop(future), future.result()) for future in done]
            if not all(goes_on(result) for _, result in results):
                waiting.clear()
            yield from results
    finally:
        if running:
            stop()
            wait([future for future in running if not future.cancel()], grace)


def in_parallel(
    function: Callable[[T], R],
    items: Sequence[T],
    workers: int,
    *,
    stop: Callable[[], None] = lambda: None,
    grace: float | None = 0.0,
) -> list[R]:
    """Return the result of ``function`` for each item, in the order of the items.

    The first exception is raised, and no further item starts; see `as_completed`.
    """
    indices = range(len(items))
    completed = as_completed(
        lambda index: function(items[index]), indices, workers, stop=stop, grace=grace
    )
    results = dict(completed)
    return [results[index] for index in indices]
