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
    with (folder / f"{engine}-{name}.lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _busy(name, file) from error
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def _busy(name: str, file: IO[str]) -> MachineError:
    file.seek(0)
    owner = file.read().strip() or "unknown"
    return MachineError(
        f"{name} is being built or tested by another imgbuild (process {owner}) on this engine. "
        "Wait until it has ended, or stop it; nothing was started here."
    )
