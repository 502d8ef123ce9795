"""``imgbuild clean``: show what imgbuild left on this machine, and remove it on request."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from imgbuild.cli.options import BUILDER, JSON, PROJECT_IF_ANY, flag, info, option, print_result
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows, count_text, size_text
from imgbuild.core.user_folders import cache_dir, state_dir

if TYPE_CHECKING:
    from imgbuild.engine.client import Engine
    from imgbuild.maintain.cleanup import Garbage

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def clean(
    remove: bool = typer.Option(
        False, "--yes", "--remove", help="Remove everything that is listed."
    ),
    only: list[str] | None = option(
        "--only KIND",
        "Only this kind: leftovers, untagged, work, images or build-cache; repeatable.",
    ),
    images: bool = flag("--images", "Also every image that imgbuild tagged."),
    build_cache: bool = flag(
        "--build-cache",
        "Also the whole build cache: the engine's, or the cache of --builder.",
    ),
    builders: list[str] | None = BUILDER,
    elsewhere: bool = flag(
        "--elsewhere",
        "Also what other repositories and state folders left on the engine; make sure that none "
        "of it is in use.",
    ),
    as_json: bool = JSON,
    checkout: Project | None = PROJECT_IF_ANY,
) -> None:
    """List unused images and leftovers; with --yes, remove them.

    Killed runs leave some. Only images and files with imgbuild's labels or in its folders are
    removed, and none that a running imgbuild or a container uses.
    """
    from imgbuild.core.settings import ENGINES_OWN, Settings
    from imgbuild.engine.client import open_engine
    from imgbuild.engine.discovery import find_buildx, with_builder
    from imgbuild.maintain.cleanup import DEFAULT, CleanupKind, find_garbage, remove_garbage
    from imgbuild.matrix.load import load_matrix

    known = sorted(CleanupKind)
    for kind in only or ():
        if kind not in known:
            raise InputError(f"--only {kind}: no such kind; allowed: {', '.join(known)}.")
    also = {CleanupKind.IMAGES: images, CleanupKind.BUILD_CACHE: build_cache}
    kinds = {*(only or DEFAULT), *(kind for kind, flag in also.items() if flag)}
    settings = checkout.settings if checkout else Settings()
    settings = settings.with_builders(tuple(builders or ()))
    repository = load_matrix(checkout.matrix).repository if checkout else None
    # Builders of the settings may be down, which does not matter to anything else here.
    more = settings.engine.builders if CleanupKind.BUILD_CACHE in kinds else ()
    names = builders or {ENGINES_OWN, *more}
    with open_engine(settings.engine) as engine:
        needs_buildx = {*names} != {ENGINES_OWN}
        buildx = find_buildx(settings.engine, engine.host) if needs_buildx else None
        reachable = engine if _is_reachable(engine) else None
        caches = tuple(
            with_builder(buildx, name) if buildx and name != ENGINES_OWN else None
            for name in sorted(names)
        )
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
    result = [
        {**finding.as_json(), "removed": remove and not finding.blocked_by} for finding in selected
    ]
    shown = {finding.kind for finding in selected}
    others = [finding for finding in findings if finding.kind not in shown]
    print_result(result, _lines(selected, others, removed=remove), as_json=as_json)
    kept = sum(finding.blocked_by is not None for finding in selected)
    if remove and kept:
        raise CheckFailedError(
            f"{kept} of {len(selected)} could not be removed; the table says why."
        )


def _is_reachable(engine: "Engine") -> bool:
    try:
        engine.version()
    except MachineError as error:
        info(f"note: {error} Only the folders on this machine are cleaned.")
        return False
    return True


def _lines(
    selected: "Sequence[Garbage]", others: "Sequence[Garbage]", *, removed: bool
) -> Iterator[str]:
    if selected:
        yield from align_rows([("kind", "what", "size", "age", "why"), *map(_row, selected)])
    going = [finding.size for finding in selected if not finding.blocked_by]
    if going:
        total = f"{count_text(len(going), 'item')}, at most {size_text(sum(going))}"
        total += " (layers that other images share stay)."
        yield f"Removed {total}" if removed else f"{total} --yes removes them."
    else:
        yield "Nothing was removed." if selected else "Nothing to clean."
    sizes: dict[str, list[int]] = {}
    for finding in others:
        sizes.setdefault(finding.kind, []).append(finding.size)
    if sizes:
        kinds = [f"{kind} ({len(each)}, {size_text(sum(each))})" for kind, each in sizes.items()]
        yield f"Not selected: {', '.join(kinds)}. --only KIND selects a kind."


def _row(finding: "Garbage") -> tuple[str, ...]:
    seconds = max(0.0, time.time() - (finding.since or 0))
    length, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    age = f"{seconds // length:.0f} {unit}" if finding.since else ""
    kept = f"; kept: {finding.blocked_by}" if finding.blocked_by else ""
    size = size_text(finding.size) if finding.size else ""
    return finding.kind, finding.name, size, age, f"{finding.why}{kept}"
