"""The stages of a generated Dockerfile. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

_FROM = re.compile(r"FROM (\S+) AS (\S+)")
_COPY = re.compile(r"--from=([a-z0-9-]+)|\bfrom=([a-z0-9-]+)")
_FILE = re.compile(r"\btype=bind,source=files/([^,\s]+)")


@dataclass(frozen=True)
class Stage:
    """One stage: its name, what it stands on, its text without the FROM line."""

    name: str
    parent: str
    text: str

    @property
    def needs(self) -> set[str]:
        """The stages and named contexts that it stands on, copies from or mounts."""
        return {self.parent, *(a or b for a, b in _COPY.findall(self.text))}

    @property
    def files(self) -> set[str]:
        """What it mounts of ``images/files``."""
        return {*_FILE.findall(self.text)}

    @property
    def instructions(self) -> tuple[str, ...]:
        """Its instructions with their continuation lines, comments and blank lines left out."""
        lines = self.text.splitlines(keepends=True)
        kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        return tuple(instructions("".join(kept)))


def stages_of(dockerfile: str) -> dict[str, Stage]:
    """Return the stages by name, in the file's order."""
    return {stage.name: stage for stage in _stages(dockerfile)}


def needed(stages: Mapping[str, Stage], target: str, replaced: Collection[str] = ()) -> set[str]:
    """Return the stages that ``target`` needs, itself included.

    ``replaced`` are stages in whose place a build is given a named context.
    """
    found: set[str] = set()
    todo = [target]
    while todo:
        name = todo.pop()
        if name in stages and name not in replaced and name not in found:
            found.add(name)
            todo.extend(stages[name].needs)
    return found


def instructions(text: str) -> Iterator[str]:
    """Yield each instruction with its continuation lines; a comment between them ends nothing."""
    current = ""
    for line in text.splitlines(keepends=True):
        within = bool(current) and line.lstrip().startswith("#")
        current += line
        if not within and not line.rstrip("\n").endswith("\\"):
            yield current
            current = ""
    if current:
        yield current


def _stages(dockerfile: str) -> Iterator[Stage]:
    parts = re.split(r"^(?=FROM )", dockerfile, flags=re.MULTILINE)
    for part in parts[1:]:
        head, _, text = part.partition("\n")
        match = _FROM.fullmatch(head.strip())
        if match:
            yield Stage(match[2], match[1], text)
