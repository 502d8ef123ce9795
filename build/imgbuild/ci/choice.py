"""Which of the selected images go to CI, and in which shards: the options of ``matrix`` put to use.

Each option narrows what is left: ``--changed-since`` and ``--missing`` together list the images
that changed and are not published as they are now.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from imgbuild.ci.changed import changes_between
from imgbuild.ci.digests import Side, look_at_inputs, this_side
from imgbuild.ci.listed import Listed
from imgbuild.ci.shards import Shard, shards
from imgbuild.ci.work import work_of
from imgbuild.matrix.images import Image, whole_family
from imgbuild.plan.inputs import BuildInputs
from imgbuild.plan.reading import Reading
from imgbuild.project import Project
from imgbuild.settings import Settings, load_settings

SELECTED = "selected"


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for, beside the selection.

    ``shard`` is one of several, ``shards`` how many there shall be; None for neither.
    """

    changed_since: str | None = None
    missing: bool = False
    repository: str | None = None
    shard: tuple[int, int] | None = None
    shards: int | None = None


@dataclass(frozen=True)
class Choice:
    """The images that go to CI, and all that the formats need to know beside."""

    listed: tuple[Listed, ...]
    shards: tuple[Shard, ...] | None
    side: Side
    inputs: BuildInputs


def choose(
    project: Project, images: tuple[Image, ...], wanted: Wanted, say: Callable[[str], None]
) -> Choice:
    """Return the images that are wanted, asking git and the registry where the options say so.

    Raises:
        InputError: a Dockerfile or lock is not the current one, there is no such revision, no
            registry is named.
        MachineError: there is no git, or the registry does not answer.

    """
    settings = load_settings(project.settings)
    inputs = look_at_inputs(project, images, settings)
    side, reading = this_side(project, images, inputs)
    reasons = _changed(side, wanted, project, settings, say)
    if wanted.missing:
        from imgbuild.ci.missing import not_published  # noqa: PLC0415 - brings requests

        missing = not_published(side, [*reasons], wanted.repository, settings, say)
        reasons = _narrowed(reasons, missing)
    listed = [Listed(i, side.exact(i.name), reasons[i.name]) for i in images if i.name in reasons]
    parts = _shards(listed, wanted, reading)
    return Choice(*_sharded(listed, parts, wanted), side, inputs)


def _changed(
    side: Side, wanted: Wanted, project: Project, settings: Settings, say: Callable[[str], None]
) -> Mapping[str, str]:
    """Return why images are wanted, as far as git can tell; every one without a revision."""
    if wanted.changed_since is None:
        return dict.fromkeys(side.images, SELECTED)
    family = whole_family(next(iter(side.images.values())).matrix)
    changes = changes_between(side, family, wanted.changed_since, project, settings)
    for line in (*changes.told, *(f"{name} is gone from the matrix" for name in changes.gone)):
        say(line)
    return changes.reasons


def _narrowed(reasons: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Return the images that both have, with what both say of them."""
    return {
        name: others[name] if reason == SELECTED else f"{reason}; {others[name]}"
        for name, reason in reasons.items()
        if name in others
    }


def _shards(listed: Sequence[Listed], wanted: Wanted, reading: Reading) -> tuple[Shard, ...] | None:
    count = wanted.shard[1] if wanted.shard else wanted.shards
    if count is None:
        return None
    images = [one.image for one in listed]
    return shards({i.name: work_of(i, reading.dockerfile(i)) for i in images}, count)


def _sharded(
    listed: Iterable[Listed], parts: tuple[Shard, ...] | None, wanted: Wanted
) -> tuple[tuple[Listed, ...], tuple[Shard, ...] | None]:
    """Return the images with their shards; of ``--shard`` those of one shard alone."""
    if parts is None:
        return tuple(listed), None
    chosen = parts if wanted.shard is None else parts[wanted.shard[0] - 1 : wanted.shard[0]]
    labels = {name: part.label for part in chosen for name in part.images}
    kept = tuple(
        replace(one, shard=labels[one.image.name]) for one in listed if one.image.name in labels
    )
    return kept, chosen if wanted.shard is None else None
