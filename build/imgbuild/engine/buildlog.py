"""The log file of a build: everything that happened, one line each, with the time."""

from datetime import UTC, datetime
from typing import TextIO

from imgbuild.engine.progress import BuildEvent, Item, Remark, StepOutput


def write_item(log: TextIO, item: Item) -> None:
    """Write one line, such as ``2026-11-01T10:00:00Z [tf-2.2-cpu] #7 compiling``.

    Plans and bytes are for displays only.
    """
    if isinstance(item, BuildEvent | Remark | StepOutput):
        log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {log_line(item)}\n")


def log_line(item: BuildEvent | Remark | StepOutput) -> str:
    """Return an item as the log shows it, without the time."""
    match item:
        case Remark():
            return item.text
        case StepOutput():
            return f"[{_whose(item.targets)}] #{item.number} {item.text}"
        case BuildEvent():
            return f"[{item.target or 'bake'}] #{item.number} {item.step} ({_ended(item)})"


def _ended(event: BuildEvent) -> str:
    if event.state == "running":
        return "started"
    error = f": {event.error}" if event.error else ""
    return f"{event.state} after {event.elapsed:.1f} s{error}"


def _whose(targets: tuple[str, ...]) -> str:
    more = f" and {len(targets) - 1} more" if len(targets) > 1 else ""
    return f"{targets[0]}{more}" if targets else "bake"
