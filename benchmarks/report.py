"""Writes the tables of docs/evidence.md from the results files: ``python -m benchmarks.report``.

What stands between ``<!-- NAME -->`` and ``<!-- end -->`` is written anew; the prose around it is
the author's. ``--check`` writes nothing and fails if a table is not the one of the results.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import RESULTS, ROOT, read_all
from benchmarks.table import table

PAGE = ROOT / "docs" / "performance.md"
BLOCK = re.compile(r"(<!-- ([a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)
#: What stands in a block whose benchmark has not run.
NOTHING = "Not measured yet."

Documents = Mapping[str, Mapping[str, Any]]


def write_report(page: Path = PAGE, folder: Path = RESULTS) -> bool:
    """Fill the page and return whether it changed."""
    old = page.read_text(encoding="utf-8")
    new = filled(old, read_all(folder))
    if new != old:
        page.write_text(new, encoding="utf-8")
    return new != old


def filled(text: str, documents: Documents) -> str:
    """Return the page with every block written from the results.

    Raises:
        ValueError: a benchmark has results and no block on the page.

    """
    blocks = [name for _, name, _ in BLOCK.findall(text)]
    missing = sorted({*documents} - {*blocks})
    if missing:
        raise ValueError(f"the page has no block for {', '.join(missing)}")
    documents = {name: documents[name] for name in blocks if name in documents}
    return BLOCK.sub(lambda m: f"{m[1]}{_block(m[2], documents)}\n{m[3]}", text)


def goals_table(documents: Documents) -> str:
    """Return a row a goal: what was aimed at, what was measured, how far that is, the verdict."""
    rows = [_goal_row(goal) for one in documents.values() for goal in one["goals"]]
    return table(["", "goal", "measured", "measured / goal", ""], rows) if rows else NOTHING


def _goal_row(goal: Mapping[str, Any]) -> list[str]:
    measured = goal["measured"]
    if measured is None:
        return [goal["text"], goal["aim"], "–", "–", "not measured"]
    return [
        goal["text"],
        goal["aim"],
        f"{measured:.3g} {goal['unit']}",
        f"{measured / goal['limit']:.2f}",
        "met" if goal["met"] else "**missed**",
    ]


def _block(name: str, documents: Documents) -> str:
    if name == "goals":
        return goals_table(documents)
    if name == "machine":
        return _machines(documents)
    return _sections(documents[name]) if name in documents else NOTHING


def _sections(document: Mapping[str, Any]) -> str:
    parts = [f"    {document['command']}"]
    if not document["ok"]:
        parts.append("A contestant failed; it has no time.")
    for section in document["sections"]:
        parts += [f"**{section['title']}**", section["table"], *section["notes"]]
    return "\n\n".join(parts)


def _machines(documents: Documents) -> str:
    if not documents:
        return NOTHING
    last = max(documents.values(), key=lambda one: str(one["time"]))
    machine, versions = last["machine"], last["versions"]
    revisions = ", ".join(sorted({str(one["revision"]) for one in documents.values()}))
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{machine['processors']} processors ({machine['model']}), "
        f"{machine['memory_mb'] / 1000:.0f} GB of memory, {machine['system']}, kernel "
        f"{machine['kernel']}; {said}; measured {str(last['time'])[:10]}, revision {revisions}."
    )


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it differs")
    if not parser.parse_args().check:
        print(f"{PAGE.name}: {'written' if write_report() else 'unchanged'}")
        return
    text = PAGE.read_text(encoding="utf-8")
    if filled(text, read_all()) != text:
        print(f"{PAGE.name} is not what the results say; run python -m benchmarks.report")
        sys.exit(1)


if __name__ == "__main__":
    main()
