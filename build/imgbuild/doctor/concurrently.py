"""Many questions at once, and no answer waited for longer than it is worth."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NoAnswerError(Exception):
    """A question was not answered in time."""


class Question(Generic[T]):
    """A function that already runs, in a thread that may be left behind."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._results: list[T] = []
        self._error: BaseException | None = None
        # Daemon: a thread stuck in a system call (a name server, NFS) must not hold up the exit.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - handed on to who asked
            self._error = error

    def answer(self, seconds: float | None = None) -> T:
        """Return what the function returned, or raise what it raised.

        Raises:
            NoAnswerError: ``seconds`` have passed; the function is left behind.

        """
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        if not self._results:
            raise NoAnswerError(f"no answer within {seconds:.0f} s")
        return self._results[0]


def within(seconds: float, function: Callable[[], T]) -> T:
    """Return what ``function`` returns, or raise :class:`NoAnswerError` after ``seconds``."""
    return Question(function).answer(seconds)
