"""The stages of a Dockerfile that install packages of the operating system's archive."""

import re
from collections.abc import Collection

from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.dockerfile.stages import Dockerfile, Stage, needed, read_dockerfile
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.settings import PrefixInterpreter, Settings

_CACHE = re.compile(r"--mount=type=cache,\S+ \\\n\s*")
_INSTALL = "sh /run/apt-install"


def needed_stages(image: Image, project: Project, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages that install packages; a local prefix has its own in place of CPython's."""
    local = isinstance(settings.interpreter_for(image.version_of("python")), PrefixInterpreter)
    replaced = {"cpython"} if local else set()
    stages = install_stages(render_dockerfile(image, project.templates), replaced)
    return (*stages, *_prefix_stages(project)) if local else stages


def _prefix_stages(project: Project) -> tuple[Stage, ...]:
    dockerfile = read_dockerfile(project.prefix_dockerfile.read_text(encoding="utf-8"))
    return tuple(stage for stage in dockerfile.stages.values() if install_instruction(stage))


def install_instruction(stage: Stage) -> str | None:
    """Return the RUN instruction of the stage that installs packages, if it has one."""
    texts = (one.text for one in stage.instructions if one.line.startswith("RUN "))
    return next((text for text in texts if _INSTALL in text), None)


def arguments(stage: Stage) -> str:
    """Return the arguments of ``apt-install``: packages, repositories, options."""
    return " ".join((install_instruction(stage) or "").partition(_INSTALL)[2].split())


def install_stages(dockerfile: Dockerfile, replaced: Collection[str] = ()) -> tuple[Stage, ...]:
    """Return the stages that install packages and that the image needs, in the file's order.

    ``replaced`` are stages in whose place a build is given a named context.
    """
    found = needed(dockerfile.stages, dockerfile.final.name, replaced)
    return tuple(stage for stage in found.values() if install_instruction(stage))


def with_plan(dockerfile: Dockerfile, stages: Collection[Stage], target: str) -> str:
    """Return the Dockerfile with a last stage ``target``: what each stage's packages would fetch.

    Each plan is made where the packages would be installed, so apt decides as it will in the build.
    """
    plans = "".join(
        f"\nFROM {stage.parent} AS {plan_name(stage)}\n{_planned(stage)}" for stage in stages
    )
    copies = "".join(f"COPY --from={plan_name(stage)} /out /\n" for stage in stages)
    return f"{dockerfile.text}{plans}\nFROM scratch AS {target}\n{copies}"


def plan_name(stage: Stage) -> str:
    """Return the name of the stage that plans another."""
    return f"plan-{stage.name}"


def _planned(stage: Stage) -> str:
    # Without apt's caches, whose locks would make plans wait for installations.
    alone = _CACHE.sub("", install_instruction(stage) or "")
    return alone.replace(_INSTALL, f"{_INSTALL} --plan /out/{stage.name}")
