"""``imgbuild clean``: show what imgbuild made and nobody needs, and remove it when told to."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.telling import say

if TYPE_CHECKING:
    from imgbuild.cleaning.finding import Finding
    from imgbuild.cleaning.images import Wanted
    from imgbuild.cleaning.survey import Survey
    from imgbuild.project import Project
    from imgbuild.settings import Settings


def clean(
    remove: Annotated[
        bool, typer.Option("--yes", "--remove", help="Remove what is shown; else it is only shown.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="KIND", help="This kind alone; repeatable."),
    ] = None,
    old: Annotated[
        bool, typer.Option("--old", help="Named images too that have a newer one beside them.")
    ] = False,
    images: Annotated[
        bool, typer.Option("--images", help="All images too that imgbuild named.")
    ] = False,
    build_cache: Annotated[
        bool,
        typer.Option(
            "--build-cache", help="The engine's whole build cache too: not imgbuild's alone."
        ),
    ] = False,
    elsewhere: Annotated[
        bool,
        typer.Option(
            "--elsewhere",
            help="What other checkouts and state folders left too; see that none is at work.",
        ),
    ] = False,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Show what imgbuild made and nobody needs; with --yes, remove it.

    Only what carries imgbuild's own marks, and nothing that a running imgbuild or a container uses.
    """
    from imgbuild.cleaning.kinds import Kind
    from imgbuild.errors import CheckFailedError

    also = {Kind.OLD: old, Kind.IMAGES: images, Kind.BUILD_CACHE: build_cache}
    chosen = _chosen(only or [], [kind for kind, flag in also.items() if flag])
    survey = _survey(_project(project), elsewhere=elsewhere)
    try:
        found = survey.look()
        mine = _selected(found, chosen)
        if remove:
            mine = tuple(survey.remove(mine))
    finally:
        if survey.engine:
            survey.engine.close()
    _tell(mine, found, removed=remove, as_json=as_json)
    failed = [one for one in mine if one.kept and remove]
    if failed:
        raise CheckFailedError(f"{len(failed)} of {len(mine)} are still there; see why above.")


def _chosen(only: Sequence[str], also: Sequence[str]) -> frozenset[str]:
    from imgbuild.cleaning.kinds import DEFAULT, Kind
    from imgbuild.errors import InputError

    known = {str(kind) for kind in Kind}
    unknown = [kind for kind in only if kind.partition("/")[0] not in known]
    if unknown:
        raise InputError(
            f"--only {unknown[0]}: there is no such kind. There are: {', '.join(sorted(known))}; "
            "cache/FOLDER is one folder of the cache."
        )
    return frozenset({*(only or DEFAULT), *also})


def _project(named: Path | None) -> "Project | None":
    """Return the checkout, or nothing outside of any: `clean` works there too."""
    from imgbuild.errors import InputError

    try:
        return options.open_project(named)
    except InputError:
        if named:
            raise
        return None


def _selected(found: "Sequence[Finding]", chosen: frozenset[str]) -> "tuple[Finding, ...]":
    from imgbuild.cleaning.kinds import Kind, wanted

    if Kind.IMAGES in chosen:  # each of these is a named image as well
        chosen = chosen | {Kind.OLD, Kind.STANDINS}
    if Kind.BUILD_CACHE in chosen:  # the cache mounts go with it
        chosen = chosen - {Kind.CACHE_MOUNTS}
    return tuple(one for one in found if wanted(one.kind, chosen))


def _survey(project: "Project | None", *, elsewhere: bool) -> "Survey":
    from functools import partial

    from imgbuild.cleaning.survey import Survey
    from imgbuild.engine.client import Engine
    from imgbuild.engine.endpoint import resolve_host
    from imgbuild.errors import MachineError
    from imgbuild.project import cache_dir, state_dir
    from imgbuild.settings import Settings, load_settings

    settings = load_settings(project.settings) if project else Settings()
    host = resolve_host(settings.engine)
    engine: Engine | None = Engine(host)
    try:
        if engine:
            engine.version()
    except MachineError as error:
        say(f"note: {error} So only the disk is looked at.")
        engine = None
    state, wanted = state_dir(), partial(_wanted, project, settings)
    return Survey(engine, host, state, cache_dir(), wanted, elsewhere, lambda *_: iter(()))


def _wanted(project: "Project | None", settings: "Settings") -> "Wanted":
    """Return what the checkout would build; where that cannot be told, nothing is called old."""
    from imgbuild.cleaning.images import Wanted
    from imgbuild.cleaning.wanted import wanted_images
    from imgbuild.errors import ImgbuildError

    if project is None:
        say("note: outside a checkout nobody knows which nameless images are current: they stay.")
        return Wanted()
    try:
        return wanted_images(project, settings)
    except ImgbuildError as error:
        say(f"note: which nameless images are current is not known, so they stay: {error}")
        return Wanted()


def _tell(
    mine: "Sequence[Finding]", found: "Sequence[Finding]", *, removed: bool, as_json: bool
) -> None:
    from imgbuild.cli.clean_tables import finding_lines

    if as_json:
        gone = [{**one.as_json(), "removed": removed and not one.kept} for one in mine]
        typer.echo(json.dumps(gone, indent=2))
        return
    typer.echo(finding_lines(mine, found, removed=removed))
