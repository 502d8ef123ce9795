"""Parse the stages of a Dockerfile, and what each uses from other stages and the context."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from imgbuild.core.files import sha256
from imgbuild.matrix.evidence import MACHINES

#: The name for the instructions before the first stage: ARGs that stages may inherit.
ARGUMENTS = "ARG"
#: ``<<EOT``, ``<<-EOT``, ``<<'EOT'``. Source: Dockerfile reference, "Here-documents".
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_FROM = re.compile(r"FROM (?:--platform=\S+ )?(\S+)(?: AS (\S+))?$", re.MULTILINE)
#: A stage that is one of several others, by the architecture that the build is for.
_CHOICE = re.compile(r"^FROM (\S+)-\$\{TARGETARCH\} AS \1\n", re.MULTILINE)
#: The end of a parent's name if the parent depends on the building machine.
_OF_MACHINE = "${BUILDARCH}"
_MOUNT = re.compile(r"--mount=(\S+)")
_STAGE_REFERENCE = re.compile(r"--from=([a-z0-9-]+)|\bfrom=([a-z0-9-]+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile.

    ``text`` is the original text. ``line`` joins its lines without comments and blank lines.
    ``body`` has the lines of its here-documents, including comments and blank lines.
    """

    text: str
    line: str
    body: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One stage of a Dockerfile.

    ``name`` is its number if it has no name. The stage ``ARG`` contains the instructions before the
    first stage. ``parent`` is the image or stage that it is based on. ``text`` begins after the
    FROM line.
    """

    name: str
    parent: str
    text: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def needs(self) -> frozenset[str]:
        """The stages and named contexts that the stage is based on, copies from or mounts.

        If the parent depends on the building machine, these are the parents on all machines.
        """
        parents = [self.parent]
        if self.parent.endswith(_OF_MACHINE):
            stem = self.parent.removesuffix(_OF_MACHINE)
            parents = [f"{stem}{architecture}" for architecture in MACHINES]
        return frozenset({*parents, *(a or b for a, b in _STAGE_REFERENCE.findall(self.text))})

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths in the build context that the stage mounts or copies, sorted."""
        paths = set[str]()
        for instruction in self.instructions:
            paths.update(_paths(instruction.line))
        return tuple(sorted(paths))

    @cached_property
    def digest(self) -> str:
        """The sha256, in hexadecimal, of all instructions including FROM, without comments."""
        lines: list[str] = []
        for instruction in self.instructions:
            lines += [instruction.line, *instruction.body]
        return sha256("\n".join(lines).encode())


@dataclass(frozen=True)
class Dockerfile:
    """A Dockerfile that the templates produced.

    Every line that begins with FROM begins a stage. COPY and ADD have no JSON arrays.
    """

    text: str

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """The stages by name, in the order of the file."""
        stages: dict[str, Stage] = {}
        for part in _split(self.text):
            instructions = tuple(_instructions(part))
            head = _FROM.match(part)
            if head:
                name = head[2] or str(len(stages))
                text = part.partition("\n")[2]
                stages[name] = Stage(name, parent=head[1], text=text, instructions=instructions)
            elif instructions:
                stages[ARGUMENTS] = Stage(
                    ARGUMENTS, parent="", text=part, instructions=instructions
                )
        return stages

    def for_architecture(self, architecture: str) -> "Dockerfile":
        """Return the Dockerfile as a build for one architecture sees it.

        ``FROM NAME-${TARGETARCH} AS NAME`` chooses one of several stages. In the result, the chosen
        stage is called NAME, and stages that the image does not need are missing.
        """
        names = _CHOICE.findall(self.text)
        if not names:
            return self
        text = _CHOICE.sub("", self.text)
        for name in names:
            text = text.replace(f" AS {name}-{architecture}\n", f" AS {name}\n")
        needed = needed_stages(Dockerfile(text).stages, self.final.name)
        parts = []
        for part in _split(text):
            head = _FROM.match(part)
            if not head or head[2] in needed:
                parts.append(part)
        return Dockerfile("".join(parts))

    @property
    def final(self) -> Stage:
        """The last stage, which is the image."""
        return self.stages[next(reversed(self.stages))]

    @property
    def chain(self) -> tuple[Stage, ...]:
        """The stages that make up the image's layers, from the lowest to the last stage."""
        stages = [self.final]
        while (parent := self.stages.get(stages[0].parent)) is not None:
            stages.insert(0, parent)
        return tuple(stages)


def needed_stages(
    stages: Mapping[str, Stage], target: str, replaced: Collection[str] = ()
) -> dict[str, Stage]:
    """Return the stages that ``target`` needs, including itself, in the order of ``stages``.

    ``replaced`` are stages that a named context replaces in a build.
    """
    names: set[str] = set()
    remaining = [target]
    while remaining:
        name = remaining.pop()
        if name in stages and name not in replaced and name not in names:
            names.add(name)
            remaining.extend(stages[name].needs)
    return {name: stage for name, stage in stages.items() if name in names}


def _split(text: str) -> list[str]:
    """Return the text before the first stage, and the text of each stage."""
    return re.split(r"^(?=FROM )", text, flags=re.MULTILINE)


def _instructions(text: str) -> Iterator[Instruction]:
    lines = iter(text.splitlines(keepends=True))
    for first in lines:
        if not _is_code(first):
            continue
        written, line, body = [first], first.strip(), list[str]()
        while line.endswith("\\"):
            written.append(next(lines, ""))
            if _is_code(written[-1]) or not written[-1]:
                line = f"{line[:-1].rstrip()} {written[-1].strip()}"
        for _, end in _HEREDOC.findall(line):
            for inner in lines:
                written.append(inner)
                body.append(inner.rstrip("\r\n"))
                if body[-1].strip("\t") == end:
                    break
        yield Instruction("".join(written), line, tuple(body))


def _is_code(line: str) -> bool:
    return line.lstrip()[:1] not in {"", "#"}


@lru_cache(maxsize=4096)
def _paths(line: str) -> tuple[str, ...]:
    """Return the paths that an instruction uses; cached, because images share most instructions."""
    word, *rest = line.split()
    paths: list[str] = []
    if word == "RUN":
        for options in _MOUNT.findall(line):
            fields = dict(field.partition("=")[::2] for field in options.split(","))
            if fields.get("type", "bind") == "bind" and "from" not in fields:
                paths.append(fields.get("source") or fields.get("src") or ".")
    elif word in {"COPY", "ADD"} and not any(option.startswith("--from=") for option in rest):
        paths = [path for path in rest if not path.startswith("--")][:-1]
    return tuple(path.strip("/") or "." for path in paths)
