"""Several files at once: four connections, and the first fault stops the others."""

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from imgbuild.downloads.download import Download
from imgbuild.downloads.progress import SILENCE, Progress
from imgbuild.downloads.sites import Sites
from imgbuild.downloads.store import fetch_by
from imgbuild.downloads.transfer import StoppedError, Way

CONNECTIONS = 4
_PATIENCE = 2.0  # seconds that stopped threads may take to see it

_Result = tuple[Download, Path | BaseException]


def fetch_all(
    downloads: Iterable[Download],
    store: Path,
    sites: Sites,
    progress: Progress = SILENCE,
    *,
    headers: Mapping[str, str] | None = None,
) -> Mapping[Download, Path]:
    """Return where each file is in ``store``, fetched where it is missing.

    ``headers`` are asked with; those that authorize go to a file's own site only.

    Raises:
        CheckFailedError: one is another file than its sha256 says.
        MachineError: one cannot be had, or the store cannot be written.

    """
    wanted = list(dict.fromkeys(downloads))
    todo: queue.SimpleQueue[Download] = queue.SimpleQueue()
    done: queue.SimpleQueue[_Result] = queue.SimpleQueue()
    for download in wanted:
        todo.put(download)
    way = Way(sites, progress, headers=headers or {})

    def work() -> None:
        _work(todo, done, lambda download: fetch_by(download, store, way))

    # Threads that a Ctrl-C need not wait for: whatever they are at, only a .part is left of it.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads[: len(wanted)]:
        thread.start()
    try:
        return dict(_result(done) for _ in wanted)
    except BaseException:
        way.stop.set()
        _empty(todo)
        for thread in threads[: len(wanted)]:
            thread.join(_PATIENCE)
        raise


def _work(
    todo: "queue.SimpleQueue[Download]",
    done: "queue.SimpleQueue[_Result]",
    bring: Callable[[Download], Path],
) -> None:
    while True:
        try:
            download = todo.get_nowait()
        except queue.Empty:
            return
        try:
            done.put((download, bring(download)))
        except StoppedError:
            return
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            done.put((download, error))
            return


def _result(done: "queue.SimpleQueue[_Result]") -> tuple[Download, Path]:
    download, result = done.get()
    if isinstance(result, BaseException):
        raise result
    return download, result


def _empty(todo: "queue.SimpleQueue[Download]") -> None:
    while not todo.empty():
        todo.get()
