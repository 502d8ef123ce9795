"""A file as what is sent to a registry: read as it is sent, so never whole in memory."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


def _nobody(_count: int) -> None:
    return


@dataclass(frozen=True)
class FileContent:
    """The bytes of ``path``, whose sha256 is ``digest``.

    ``told`` hears how many bytes were read of it, from 0 again with every try; what it raises ends
    the sending.
    """

    path: Path
    digest: str
    told: Callable[[int], None] = field(default=_nobody, repr=False)

    def opened(self) -> io.FileIO:
        """Return it, from its beginning."""
        return _Heard(self.path, self.told)


class _Heard(io.FileIO):
    """A file that tells how far it was read."""

    def __init__(self, path: Path, told: Callable[[int], None]) -> None:
        super().__init__(path)
        self._told = told

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(-1 if size is None else size)
        self._told(self.tell())
        return found or b""
