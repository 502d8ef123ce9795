"""``imgbuild test``: run the suites in images that are built already."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.selecting import Chosen, selecting

if TYPE_CHECKING:
    from imgbuild.project import Project


@selecting
def test(
    chosen: Chosen,
    suite: Annotated[
        list[str] | None, typer.Option("--suite", help="Run this suite only; repeatable.")
    ] = None,
    list_suites: Annotated[
        bool, typer.Option("--list-suites", help="Say which suites there are; run none.")
    ] = False,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Test this image, by name or id, instead of the named one."),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="KEY=VALUE,…",
            help="What --image must be, where it is none of the matrix: tf=2.2,horovod=0.19.5.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=64, help="How many images to test at once.")
    ] = min(os.cpu_count() or 1, 4),
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop at the first check that fails.")
    ] = False,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Run suites again that passed before, unchanged.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="Folder for report.json, junit.xml and summary.md: of the run, and of each image.",
        ),
    ] = None,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Run the suites in images that are built already; exit 1 if one fails.

    A suite that passed on the same image, with the same code and the same expectation, is not run
    again.
    """
    from imgbuild.cli.test_run import Wanted, test_elsewhere, test_family
    from imgbuild.errors import InputError
    from imgbuild.suites.docker_client import require_docker_client
    from imgbuild.suites.examine import How

    opened = options.open_project(project)
    if list_suites:
        _list(opened, as_json=as_json)
        return
    how = How(tuple(suite or ()), rerun=rerun, fail_fast=fail_fast)
    folder = report.absolute() if report else None
    wanted = Wanted(how, image, tuple(expect or ()), jobs, folder, as_json)
    if expect and (not image or chosen.any):
        raise InputError(
            "--expect says what an image from elsewhere must be: give it with --image, and without "
            "--tf, --cpu, --gpu, --stack, --mpi, --all, --as-documented and --name."
        )
    if expect:
        require_docker_client()
        test_elsewhere(opened, wanted)
        return
    images = chosen.images(opened)
    wanted.check(opened, images)
    require_docker_client()
    test_family(opened, images, wanted)


def _list(project: "Project", *, as_json: bool) -> None:
    from imgbuild.cli.test_tables import suite_json, suite_lines
    from imgbuild.suites.code import read_suites

    suites = read_suites(project.suites)
    typer.echo(suite_json(suites) if as_json else suite_lines(suites))
