"""The stages of a Dockerfile, with what each takes from other stages and from the build context."""

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from imgbuild.files import sha256

#: The instructions before the first stage: the ARGs that stages may take over.
ARGUMENTS = "ARG"
#: ``<<EOT``, ``<<-EOT``, ``<<'EOT'``. Source: Dockerfile reference, "Here-documents".
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_FROM = re.compile(r"FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_TAKES_HEREDOC = re.compile(r"(?:RUN|COPY|ADD)\s.*<<", re.IGNORECASE | re.DOTALL)
_MOUNT = re.compile(r"--mount=(\S+)")
_STAGE_REFERENCE = re.compile(r"--from=([a-z0-9-]+)|\bfrom=([a-z0-9-]+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction: as written, its lines joined into one, the lines of its here-documents.

    ``line`` has no comments and blank lines; in a here-document they are content.
    """

    text: str
    line: str
    body: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One stage: its name, the image or stage that it is based on, its text below the FROM line.

    A stage without a name has its number. ``ARG`` holds the instructions before the first stage.
    """

    name: str
    parent: str
    text: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def needs(self) -> frozenset[str]:
        """The stages and named contexts that it is based on, copies from or mounts."""
        return frozenset({self.parent, *(a or b for a, b in _STAGE_REFERENCE.findall(self.text))})

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of the build context that it mounts or copies, sorted."""
        return tuple(sorted({path for one in self.instructions for path in _paths(one.line)}))

    @cached_property
    def digest(self) -> str:
        """The sha256, in hexadecimal, of its instructions without comments, FROM included."""
        lines = [line for one in self.instructions for line in (one.line, *one.body)]
        return sha256("\n".join(lines).encode())


@dataclass(frozen=True)
class Dockerfile:
    """A Dockerfile's text, and its stages by name in the file's order."""

    text: str
    stages: dict[str, Stage]

    @property
    def final(self) -> Stage:
        """The last stage: the image."""
        return self.stages[next(reversed(self.stages))]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the build context that it mounts or copies, sorted."""
        return tuple(sorted({path for stage in self.stages.values() for path in stage.paths}))


def read_dockerfile(text: str) -> Dockerfile:
    """Return the stages of a Dockerfile whose escape character is the usual one."""
    lines = text.splitlines(keepends=True)
    starts: list[int] = [0]
    groups: list[list[Instruction]] = [[]]
    for number, instruction in _instructions(lines):
        if _FROM.match(instruction.line):
            starts.append(number)
            groups.append([])
        groups[-1].append(instruction)
    stages: dict[str, Stage] = {}
    for start, end, group in zip(starts, [*starts[1:], len(lines)], groups, strict=True):
        head = _FROM.match(group[0].line) if group else None
        if head:
            name, below = head[2] or str(len(stages)), "".join(lines[start + 1 : end])
            stages[name] = Stage(name, head[1], below, tuple(group))
        elif group:
            stages[ARGUMENTS] = Stage(ARGUMENTS, "", "".join(lines[:end]), tuple(group))
    return Dockerfile(text, stages)


def needed(
    stages: Mapping[str, Stage], target: str, replaced: Collection[str] = ()
) -> dict[str, Stage]:
    """Return those of ``stages`` that ``target`` needs, itself included, in their order.

    ``replaced`` are stages for which a build has a named context.
    """
    found: set[str] = set()
    todo = [target]
    while todo:
        name = todo.pop()
        if name in stages and name not in replaced and name not in found:
            found.add(name)
            todo.extend(stages[name].needs)
    return {name: stage for name, stage in stages.items() if name in found}


def _instructions(lines: Sequence[str]) -> Iterator[tuple[int, Instruction]]:
    """Yield each instruction with the index of its first line."""
    numbered = enumerate(lines)
    last = 0
    for number, first in numbered:
        if not _is_code(first):
            continue
        last, joined = number, [first.strip()]
        while joined[-1].endswith("\\"):
            last, following = next(
                ((index, line) for index, line in numbered if _is_code(line)), (last, "")
            )
            joined[-1] = joined[-1].removesuffix("\\").rstrip()
            joined.append(following.strip())
        line = " ".join(joined)
        body: list[str] = []
        for _, end in _HEREDOC.findall(line) if _TAKES_HEREDOC.match(line) else ():
            for last, inner in numbered:  # noqa: B007 - the index of the instruction's last line
                body.append(inner.rstrip("\r\n"))
                if body[-1].strip("\t") == end:
                    break
        yield number, Instruction("".join(lines[number : last + 1]), line, tuple(body))


def _is_code(line: str) -> bool:
    return line.lstrip()[:1] not in {"", "#"}


@lru_cache(maxsize=4096)
def _paths(line: str) -> tuple[str, ...]:
    """Return the paths that one instruction takes; images have most instructions in common."""
    word = line.split(maxsplit=1)[0].upper()
    found = {"RUN": _mounted, "COPY": _copied, "ADD": _copied}.get(word, lambda _: ())(line)
    return tuple(path.strip("/") or "." for path in found)


def _mounted(line: str) -> Iterator[str]:
    for options in _MOUNT.findall(line):
        fields = dict(field.partition("=")[::2] for field in options.split(","))
        if fields.get("type", "bind") == "bind" and "from" not in fields:
            yield fields.get("source") or fields.get("src") or "."


def _copied(line: str) -> Iterator[str]:
    _, *words = line.split()
    options = [word for word in words if word.startswith("--")]
    if any(option.startswith("--from=") for option in options):
        return
    rest = line.split(maxsplit=1)[1]
    for option in options:
        rest = rest.replace(option, "", 1)
    sources = json.loads(rest) if rest.strip().startswith("[") else shlex.split(rest)
    for source in sources[:-1]:
        if not str(source).startswith(("<<", "http://", "https://")):
            yield str(source)
