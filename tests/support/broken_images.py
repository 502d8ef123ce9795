r"""The broken images: Dockerfiles whose header says which suite must fail, in which check, and how.

# suite: pins
# base: tf-2.2-cpu-debian          the image of the matrix that it derives from and is tested as
# fails: test_pin\[git\]             a regular expression, searched in the names of failed checks
# says: pinned .*, the image has   another, searched in that check's message

A fifth line `# slow: yes` is for those on which a suite waits for its time limits, and for those
that take longest where another image breaks the same suite. They are run by `make nightly`, not by
every `make test`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "e2e" / "broken"
KEYS = ("suite", "base", "fails", "says")
SLOW = "# slow: yes"
_HEADER = re.compile(r"# (?P<key>[a-z]+): (?P<value>.+)")
#: Suites that no image can be broken for on every machine: the checks need a GPU.
NEED_A_GPU = frozenset({"gpu_runs"})


@dataclass(frozen=True)
class Broken:
    """One Dockerfile and its header."""

    file: Path
    suite: str
    base: str
    fails: str
    says: str
    slow: bool = False

    @property
    def tag(self) -> str:
        return f"imgbuild-broken/{self.file.stem}"


def broken_images() -> list[Broken]:
    """Return all of them in the order of their names."""
    return [read_broken(file) for file in sorted(FOLDER.glob("*.Dockerfile"))]


def read_broken(file: Path) -> Broken:
    """Return one; ValueError where its header is not whole or its patterns are none."""
    lines = file.read_text(encoding="utf-8").splitlines()
    found = [match for match in map(_HEADER.fullmatch, lines[: len(KEYS)]) if match]
    if tuple(match["key"] for match in found) != KEYS:
        raise ValueError(f"{file}: the first {len(KEYS)} lines must be # {': …, # '.join(KEYS)}: …")
    values = {match["key"]: match["value"].strip() for match in found}
    for key in ("fails", "says"):
        re.compile(values[key])
    return Broken(file, **values, slow=lines[len(KEYS)] == SLOW)
