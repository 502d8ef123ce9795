"""Stages that images of several stacks have in common: built for one of them, given to the others.

Within a stack BuildKit sees by itself that two images need the same step. Across stacks it cannot,
since the steps stand on other systems, though what they make is the same: a lock installed with
Python 3.6 into a tree of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from imgbuild.dockerfile.stages import needed, read_dockerfile
from imgbuild.engine.bake import BakeTarget

#: Stages whose name begins so hold Python packages and nothing of the system.
PREFIX = "packages"


def share_packages(targets: Sequence[BakeTarget], stacks: Mapping[str, str]) -> list[BakeTarget]:
    """Return the targets, with named contexts for the stages that another stack's target makes.

    ``stacks`` tells each target's stack by its name. The stages that are shared become targets of
    their own, that nothing is exported of.
    """
    makers: dict[str, tuple[str, BakeTarget]] = {}
    result, made = [], {}
    for target in targets:
        contexts = {}
        for name, text in _package_stages(target).items():
            stage, maker = makers.setdefault(text, (name, target))
            if stacks[maker.name] != stacks[target.name]:
                linked = _linked(maker, stage)
                made[linked.name] = linked
                contexts[name] = f"target:{linked.name}"
        result.append(replace(target, contexts={**target.contexts, **contexts}))
    return [*result, *made.values()]


def _package_stages(target: BakeTarget) -> dict[str, str]:
    """Return each stage's text by its name, with the texts of those that it looks into."""
    stages = read_dockerfile(target.dockerfile.read_text(encoding="utf-8")).stages
    packages = {name: stage for name, stage in stages.items() if name.split("-")[0] == PREFIX}
    return {
        name: "\n".join(packages[one].text for one in sorted(needed(packages, name)))
        for name in packages
    }


def _linked(maker: BakeTarget, stage: str) -> BakeTarget:
    return replace(
        maker,
        name=f"{maker.name}-{stage}",
        target=stage,
        labels={},
        tags=(),
        output="",
        linked=True,
    )
