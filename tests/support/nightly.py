"""Run a part of the tests that are too slow for `make test`, and note when each file passed.

``python -m support.nightly 2/6`` runs the second of six parts, ``--report`` says what is overdue.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from support.project_copy import ROOT

#: When each file last passed, at which commit, and in how many seconds on two cores.
RECORD = ROOT / "tests" / "nightly.json"
#: A file is overdue after so many days.
OVERDUE = 14
#: The seconds of a file that has never passed.
UNKNOWN = 300.0

Record = dict[str, dict[str, Any]]


def nightly_files() -> list[str]:
    """Return the files that have such a test, relative to the checkout."""
    paths = sorted((ROOT / "tests" / "fuzz").glob("test_*.py"))
    paths += sorted((ROOT / "tests" / "e2e").glob("test_*.py"))
    return [
        str(path.relative_to(ROOT))
        for path in paths
        if "mark.nightly" in path.read_text(encoding="utf-8")
    ]


def divide(
    files: Sequence[str], record: Mapping[str, Mapping[str, Any]], parts: int
) -> list[list[str]]:
    """Divide the files into parts of about equal time: the longest first, to the shortest part."""
    seconds = {file: record.get(file, {}).get("seconds", UNKNOWN) for file in files}
    divided: list[list[str]] = [[] for _ in range(parts)]
    for file in sorted(files, key=lambda file: (-seconds[file], file)):
        shortest = min(divided, key=lambda part: sum(seconds[other] for other in part))
        shortest.append(file)
    return divided


def overdue(
    files: Sequence[str], record: Mapping[str, Mapping[str, Any]], today: date
) -> list[str]:
    """Return the files that have not passed for `OVERDUE` days, each with how long it is."""
    late = []
    for file in files:
        if file not in record:
            late.append(f"{file} (never)")
            continue
        days = (today - date.fromisoformat(record[file]["day"])).days
        if days > OVERDUE:
            late.append(f"{file} ({days} days)")
    return late


def read_record() -> Record:
    return dict(json.loads(RECORD.read_text(encoding="utf-8")))


def run_part(files: Sequence[str], record: Record, pytest: Sequence[str]) -> int:
    """Run the files one after another, and record each that passes; return how many failed."""
    failed = 0
    for file in files:
        started = time.monotonic()
        command = [*pytest, file, "-m", "nightly"]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed += 1
            continue
        seconds = round(time.monotonic() - started)
        day = datetime.now(UTC).date().isoformat()
        record[file] = {"seconds": seconds, "day": day, "commit": _commit()}
        RECORD.write_text(f"{json.dumps(record, indent=1, sort_keys=True)}\n", encoding="utf-8")
    return failed


def _commit() -> str:
    """Return the commit of the checkout, with ``+`` if a file other than the record has changed."""
    git = ("git", "-C", str(ROOT))
    revision = (*git, "rev-parse", "--short=12", "HEAD")
    commit = subprocess.run(revision, capture_output=True, text=True, check=True).stdout.strip()
    other = f":!{RECORD.relative_to(ROOT)}"
    changed = subprocess.run((*git, "diff", "--quiet", "HEAD", "--", ".", other), check=False)
    return f"{commit}+" if changed.returncode else commit


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(words: Sequence[str]) -> int:
    files, record = nightly_files(), read_record()
    if words == ["--report"]:
        late = overdue(files, record, datetime.now(UTC).date())
        if late:
            text = f"{len(late)} of {len(files)} files of `make nightly` have not passed for "
            _say(f"{text}{OVERDUE} days: {', '.join(late)}")
        return 0
    number, _, count = (words or ["1/1"])[0].partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        _say(f"PART={words[0]}: give K/N, such as 2/6.")
        return 2
    part = divide(files, record, int(count))[int(number) - 1]
    _say(f"Part {number} of {count}: {', '.join(part)}")
    return 1 if run_part(part, record, [sys.executable, "-m", "pytest"]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
