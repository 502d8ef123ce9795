"""Which steps of a generated Dockerfile install packages of an archive. Pure."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_FROM = re.compile(r"FROM (\S+) AS (\S+)")
_COPY = re.compile(r"--from=([a-z0-9-]+)|\bfrom=([a-z0-9-]+)")
_CACHE = re.compile(r"--mount=type=cache,\S+ \\\n\s*")
_INSTALL = "sh /run/apt-install"


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
    def install(self) -> str | None:
        """The RUN instruction that installs packages, if it has one."""
        for instruction in _instructions(self.text):
            if instruction.startswith("RUN ") and _INSTALL in instruction:
                return instruction
        return None

    @property
    def arguments(self) -> str:
        """What ``apt-install`` is asked for: packages, repositories, options."""
        return " ".join((self.install or "").partition(_INSTALL)[2].split())


def install_stages(dockerfile: str, replaced: Collection[str] = ()) -> tuple[Stage, ...]:
    """Return the stages that install packages and that the image needs, in the file's order.

    ``replaced`` are stages in whose place a build is given a named context.
    """
    stages = {stage.name: stage for stage in _stages(dockerfile)}
    found: set[str] = set()
    todo = [[*stages][-1]] if stages else []
    while todo:
        name = todo.pop()
        if name in stages and name not in replaced and name not in found:
            found.add(name)
            todo.extend(stages[name].needs)
    return tuple(stage for stage in stages.values() if stage.name in found and stage.install)


def with_plan(dockerfile: str, stages: Collection[Stage], target: str) -> str:
    """Return the Dockerfile with a last stage ``target``: what each stage's packages would fetch.

    Each plan is made where the packages would be installed, so apt decides as it will in the build.
    """
    plans = "".join(
        f"\nFROM {stage.parent} AS {plan_name(stage)}\n{_planned(stage)}" for stage in stages
    )
    copies = "".join(f"COPY --from={plan_name(stage)} /out /\n" for stage in stages)
    return f"{dockerfile}{plans}\nFROM scratch AS {target}\n{copies}"


def plan_name(stage: Stage) -> str:
    """Return the name of the stage that plans another."""
    return f"plan-{stage.name}"


def _planned(stage: Stage) -> str:
    # Without apt's caches, whose locks would make plans wait for installations.
    alone = _CACHE.sub("", stage.install or "")
    return alone.replace(_INSTALL, f"{_INSTALL} --plan /out/{stage.name}")


def _stages(dockerfile: str) -> Iterator[Stage]:
    parts = re.split(r"^(?=FROM )", dockerfile, flags=re.MULTILINE)
    for part in parts[1:]:
        head, _, text = part.partition("\n")
        match = _FROM.fullmatch(head.strip())
        if match:
            yield Stage(match[2], match[1], text)


def _instructions(text: str) -> Iterator[str]:
    """Yield each instruction with its continuation lines."""
    current = ""
    for line in text.splitlines(keepends=True):
        current += line
        if not line.rstrip("\n").endswith("\\"):
            yield current
            current = ""
    if current:
        yield current
