"""One build or test of an image at a time: a second would race for its name."""

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from imgbuild.errors import MachineError


@contextmanager
def image_locks(names: Iterable[str], host: str | None, folder: Path) -> Iterator[None]:
    """Hold the locks of the named images on one engine. A kill releases them too.

    Raises:
        MachineError: another imgbuild works on one of them; its process id is given.

    """
    with ExitStack() as stack:
        # In one order everywhere, so that two builds of several images cannot block each other.
        for name in sorted(names):
            stack.enter_context(_lock(name, host, folder))
        yield


@contextmanager
def _lock(name: str, host: str | None, folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    engine = re.sub(r"[^A-Za-z0-9]+", "-", host or "default").strip("-")
    with ExitStack() as stack:
        file = stack.enter_context(_taken(name, folder / f"{engine}-{name}.lock"))
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def _taken(name: str, path: Path) -> IO[str]:
    """Return the lock file, open and locked; not one that `imgbuild clean` has just removed."""
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with file:
                raise _busy(name, file) from error
        if _same(file, path):
            return file
        file.close()


def _same(file: IO[str], path: Path) -> bool:
    """Return whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _busy(name: str, file: IO[str]) -> MachineError:
    file.seek(0)
    owner = file.read().strip() or "unknown"
    return MachineError(
        f"{name} is being built, tested or pushed by another imgbuild (process {owner}) on this "
        "engine. Wait until it has ended, or stop it; nothing was started here."
    )
