"""``imgbuild clean``: list and remove images and leftovers of imgbuild on this machine."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from imgbuild.cli.options import BUILDER, JSON, PROJECT_IF_ANY, flag, info, option, print_result
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows, count_text, size_text
from imgbuild.core.user_folders import cache_dir, state_dir

if TYPE_CHECKING:
    from imgbuild.engine.client import Engine
    from imgbuild.engine.discovery import Buildx
    from imgbuild.maintain.cleanup import Garbage

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def clean(
    remove: bool = flag("--yes", "Remove everything in the list."),
    only: list[str] | None = option(
        "--only KIND",
        "Select only this kind: leftovers, untagged, work, images or build-cache; repeatable.",
    ),
    images: bool = flag(
        "--images",
        "Also select all images that imgbuild tagged or adopted, and base images that it made.",
    ),
    build_cache: bool = flag(
        "--build-cache",
        "Also select the build cache of all projects, on the engine and on the builders in the "
        "settings. With --builder, only on that builder.",
    ),
    builders: list[str] | None = BUILDER,
    elsewhere: bool = flag(
        "--elsewhere",
        "Also select images of other repositories, and leftovers of other state folders on the "
        "engine. Check first that nobody uses them.",
    ),
    as_json: bool = JSON,
    checkout: Project | None = PROJECT_IF_ANY,
) -> None:
    """List unused images and leftovers; with --yes, remove them.

    Interrupted runs leave containers, networks and temporary tags behind. The command removes only
    images with imgbuild's labels and files in its folders. It keeps images and files that a running
    imgbuild or a container uses.

    Example: imgbuild clean --yes
    """
    from imgbuild.core.settings import ENGINES_OWN, Settings
    from imgbuild.engine.client import open_engine
    from imgbuild.engine.discovery import find_buildx
    from imgbuild.maintain.cleanup import CleanupKind, find_garbage, remove_garbage
    from imgbuild.matrix.load import load_matrix

    kinds = _choose_kinds(only or (), images=images, build_cache=build_cache)
    settings = checkout.settings if checkout else Settings()
    settings = settings.with_builders(tuple(builders or ()))
    repository = None
    if checkout:
        repository = load_matrix(checkout.matrix).repository
    default_names = {ENGINES_OWN}
    # Ask the settings' builders only for their build cache, because they may be down.
    if CleanupKind.BUILD_CACHE in kinds:
        default_names.update(settings.engine.builders)
    names = sorted(builders or default_names)
    with open_engine(settings.engine) as engine:
        buildx = None
        if set(names) != {ENGINES_OWN}:
            buildx = find_buildx(settings.engine, engine.host)
        reachable = engine if _is_reachable(engine) else None
        caches = [_find_cache(name, buildx) for name in names]
        findings = find_garbage(
            reachable,
            state_dir(),
            cache_dir(),
            elsewhere=elsewhere,
            repository=repository,
            builders=caches,
        )
        selected = [finding for finding in findings if finding.kind in kinds]
        if remove:
            selected = [*remove_garbage(selected, reachable, state_dir())]
    result = []
    for finding in selected:
        removed = remove and not finding.blocked_by
        result.append({**finding.as_json(), "removed": removed})
    shown = {finding.kind for finding in selected}
    others = [finding for finding in findings if finding.kind not in shown]
    lines = _lines(selected, others, removed=remove)
    print_result(result, lines, as_json=as_json)
    kept = sum(finding.blocked_by is not None for finding in selected)
    if remove and kept:
        raise CheckFailedError(
            f"{kept} of {len(selected)} items could not be removed. See the reasons in the table."
        )


def _choose_kinds(only: Sequence[str], *, images: bool, build_cache: bool) -> set[str]:
    """Return the kinds that the options select; InputError: a kind does not exist."""
    from imgbuild.maintain.cleanup import DEFAULT, CleanupKind

    known = sorted(CleanupKind)
    for kind in only:
        if kind not in known:
            raise InputError(f"--only {kind}: no such kind. Use one of: {', '.join(known)}.")
    kinds = set[str](only or DEFAULT)
    if images:
        kinds.add(CleanupKind.IMAGES)
    if build_cache:
        kinds.add(CleanupKind.BUILD_CACHE)
    return kinds


def _find_cache(name: str, buildx: "Buildx | None") -> "Buildx | None":
    """Return the builder with this name; None means the engine's own builder."""
    from imgbuild.core.settings import ENGINES_OWN
    from imgbuild.engine.discovery import with_builder

    if buildx is None or name == ENGINES_OWN:
        return None
    return with_builder(buildx, name)


def _is_reachable(engine: "Engine") -> bool:
    try:
        engine.version()
    except MachineError as error:
        info(f"note: {error} imgbuild cleans only the folders on this machine.")
        return False
    return True


def _lines(
    selected: "Sequence[Garbage]", others: "Sequence[Garbage]", *, removed: bool
) -> Iterator[str]:
    if selected:
        header = ("kind", "what", "size", "age", "why")
        yield from align_rows([header, *map(_row, selected)])
    going = [finding.size for finding in selected if not finding.blocked_by]
    if going:
        count = count_text(len(going), "item")
        most = size_text(sum(going))
        total = f"{count}, at most {most} (layers that other images use stay)."
        yield f"Removed {total}" if removed else f"{total} Use --yes to remove them."
    elif selected:
        yield "Nothing was removed."
    else:
        yield "Nothing to clean."
    sizes: dict[str, list[int]] = {}
    for finding in others:
        sizes.setdefault(finding.kind, []).append(finding.size)
    kinds = []
    for kind, each in sizes.items():
        total = size_text(sum(each))
        kinds.append(f"{kind} ({len(each)}, {total})")
    if kinds:
        yield f"Not selected: {', '.join(kinds)}. Use --only KIND to select a kind."


def _row(finding: "Garbage") -> tuple[str, ...]:
    age = _age(finding.since) if finding.since else ""
    size = size_text(finding.size) if finding.size else ""
    why = finding.why
    if finding.blocked_by:
        why += f"; kept: {finding.blocked_by}"
    return finding.kind, finding.name, size, age, why


def _age(since: float) -> str:
    """Return the time that has passed, in its largest unit."""
    seconds = max(0.0, time.time() - since)
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    length, unit = _UNITS[-1]
    return f"{seconds // length:.0f} {unit}"
