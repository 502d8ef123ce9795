"""The bake definition: what ``docker buildx bake`` builds, as JSON. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imgbuild.engine.progress import bake_name
from imgbuild.errors import InputError


@dataclass(frozen=True)
class BakeTarget:
    """One image to build.

    ``contexts`` are named build contexts: a folder, ``docker-image://NAME`` or ``target:IMAGE``.
    ``secrets`` are in buildx's form, ``id=ca,src=/path``. ``target`` is the Dockerfile stage, the
    last one by default. ``type=docker`` is the engine's own store, whichever kind it has.
    ``uncached`` are stages that are always built anew. ``linked`` is built only for the targets
    whose contexts name it.
    """

    name: str
    context: Path
    dockerfile: Path
    contexts: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    target: str | None = None
    output: str = "type=docker"
    uncached: tuple[str, ...] = ()
    linked: bool = False


def bake_definition(
    targets: Sequence[BakeTarget], epoch: int | None = None
) -> dict[str, dict[str, object]]:
    """Return the definition, in an order that depends on nothing but the targets.

    Args:
        targets: the images; two of one name are an `InputError`.
        epoch: seconds since 1970 for every time stamp in the images (``SOURCE_DATE_EPOCH``).

    """
    names = [bake_name(target.name) for target in targets]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"Two images to build have the same name: {', '.join(twice)}.")
    described = {name: _described(one, epoch) for name, one in zip(names, targets, strict=True)}
    return {
        "group": {"default": {"targets": sorted(_wanted(targets))}},
        "target": {name: described[name] for name in sorted(described)},
    }


def _wanted(targets: Sequence[BakeTarget]) -> list[str]:
    return [bake_name(target.name) for target in targets if not target.linked]


def _described(target: BakeTarget, epoch: int | None) -> dict[str, object]:
    stamp = {} if epoch is None else {"SOURCE_DATE_EPOCH": str(epoch)}
    described: dict[str, object] = {
        "context": str(target.context.absolute()),
        "dockerfile": str(target.dockerfile.absolute()),
        "contexts": {name: _context(where) for name, where in sorted(target.contexts.items())},
        "args": _literals({**target.args, **stamp}),
        "labels": _literals(target.labels),
        "secret": list(target.secrets),
        "tags": list(target.tags),
        "target": target.target,
        "output": [target.output] if target.output else [],
        "no-cache-filter": list(target.uncached),
    }
    return {key: value for key, value in described.items() if value}


def _context(where: str) -> str:
    """Return a named context as bake knows it: another image goes by its bake name."""
    kind, colon, image = where.partition(":")
    return f"target:{bake_name(image)}" if kind == "target" and colon else where


def _literals(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values so that bake does not evaluate ``${…}`` and ``%{…}`` in them."""
    return {
        key: value.replace("${", "$${").replace("%{", "%%{")
        for key, value in sorted(values.items())
    }
