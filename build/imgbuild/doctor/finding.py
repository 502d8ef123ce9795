"""One row of what ``imgbuild doctor`` found."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """How one thing stands. Only ``MISSING`` keeps a build from being done."""

    FINE = "ok"
    WARNING = "warning"
    MISSING = "missing"
    SKIPPED = "skipped"

    @property
    def sign(self) -> str:
        """One character for people."""
        return {"ok": "✓", "warning": "!", "missing": "✗", "skipped": "–"}[self.value]  # noqa: RUF001


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it stands, and what mends it."""

    status: Status
    what: str
    detail: str
    mend: str | None = None
    """A command, or a sentence where no command can do it."""
    packages: tuple[str, ...] = ()
    """Debian packages that mend it; what ``--mend`` installs."""

    def as_json(self) -> dict[str, str | None]:
        """Return what ``--json`` prints of this row."""
        return {
            "status": self.status.value,
            "what": self.what,
            "detail": self.detail,
            "mend": self.mend,
        }


def fine(what: str, detail: str) -> Finding:
    """Return a row with ✓."""
    return Finding(Status.FINE, what, detail)


def skipped(what: str, detail: str) -> Finding:
    """Return a row of something that could not, or need not, be looked at."""
    return Finding(Status.SKIPPED, what, detail)
