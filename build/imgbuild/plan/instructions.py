"""What a Dockerfile's text says to BuildKit: its stages, and what they take from the context. Pure.

Comments and empty lines between instructions say nothing; in a here-document they are content.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

#: What stands before the first stage: the ARGs that stages may take over.
ARGUMENTS = "ARG"
#: ``<<EOT``, ``<<-EOT``, ``<<'EOT'``. Source: Dockerfile reference, "Here-documents".
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_STAGE = re.compile(r"FROM\s+(?:--\S+\s+)*\S+(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_TAKES = re.compile(r"(?:RUN|COPY|ADD)\s.*<<", re.IGNORECASE | re.DOTALL)
_MOUNT = re.compile(r"--mount=(\S+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its own lines joined into one, and the lines of its here-documents."""

    line: str
    body: tuple[str, ...] = ()


@dataclass(frozen=True)
class DockerfileInputs:
    """The sha256, in hexadecimal, of each stage's instructions, and paths of the context.

    A stage without a name has its number; ``ARG`` is what comes before the first.
    """

    stages: Mapping[str, str]
    paths: tuple[str, ...]


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile whose escape character is the usual one."""
    lines = iter(text.splitlines())
    for first in lines:
        if not _says_something(first):
            continue
        joined = [first.strip()]
        while joined[-1].endswith("\\"):
            following = next((line for line in lines if _says_something(line)), "")
            joined[-1] = joined[-1].removesuffix("\\").rstrip()
            joined.append(following.strip())
        line = " ".join(joined)
        body: list[str] = []
        for _, end in _HEREDOC.findall(line) if _TAKES.match(line) else ():
            for inner in lines:
                body.append(inner)
                if inner.strip("\t") == end:
                    break
        yield Instruction(line, tuple(body))


def read_dockerfile(text: str) -> DockerfileInputs:
    """Return what a Dockerfile's text puts into the image, and what it takes from its context."""
    stages: dict[str, list[str]] = {}
    paths: set[str] = set()
    name = ARGUMENTS
    for instruction in instructions(text):
        found = _STAGE.match(instruction.line)
        if found:
            name = found[1] or str(len(stages))
        stages.setdefault(name, []).extend((instruction.line, *instruction.body))
        paths.update(_taken(instruction.line))
    digests = {name: _sha256("\n".join(lines)) for name, lines in stages.items()}
    return DockerfileInputs(digests, tuple(sorted(paths)))


@lru_cache(maxsize=4096)
def _taken(line: str) -> tuple[str, ...]:
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


def _says_something(line: str) -> bool:
    return line.lstrip()[:1] not in {"", "#"}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
