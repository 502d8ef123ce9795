"""``imgbuild push``: publish images whose report is green."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from imgbuild.cli import options
from imgbuild.cli.options import select, takes_selection
from imgbuild.cli.telling import say
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from imgbuild.project import Project
    from imgbuild.publishing.session import Wish

ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="HOST[:PORT]/REPOSITORY",
        help="Where to. Default: publishing.repository of imgbuild.local.yaml.",
        show_default=False,
    ),
]


@takes_selection()
def push(
    selection: Selection,
    to: ToOption = None,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            metavar="YYYYMMDD.N",
            help="The release in the immutable tag. Default: the image's own if it is published, "
            "else the next of today.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what would be published as what; do nothing.")
    ] = False,
    allow_substituted: Annotated[
        bool,
        typer.Option(
            "--allow-substituted",
            help="Also images with inputs that are not the matrix's own, such as a CPython of "
            "this machine; their record says so.",
        ),
    ] = False,
    allow_skipped: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-skipped",
            metavar="SUITE",
            help="Also images in which this suite was skipped, such as gpu_runs; repeatable.",
        ),
    ] = None,
    roll_back: Annotated[
        bool,
        typer.Option(
            "--roll-back", help="Move the moving tags also where a newer release holds them."
        ),
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=32, help="How many images to push at once.")
    ] = 3,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Publish images whose suites passed on this very image.

    Each gets one immutable tag that says everything, and the tags that move to it at last
    (docs/images.md). What is there already is not sent again; an interrupted push is completed by
    running it again. Log in before with `docker login HOST`.
    """
    from imgbuild.publishing.gate import Allowance
    from imgbuild.publishing.release import check_release
    from imgbuild.publishing.session import Wish

    allowance = Allowance(allow_substituted, tuple(allow_skipped or ()))
    allowance.check()
    if release is not None:
        check_release(release)
    opened = options.open_project(project)
    images = select(opened, selection)
    wish = Wish(images, to, release, allowance, roll_back, jobs)
    (_plan if plan else _push)(opened, wish, as_json=as_json)


def _push(project: "Project", wish: "Wish", *, as_json: bool) -> None:
    from imgbuild.cli.push_table import pushed_json, pushed_lines
    from imgbuild.errors import CheckFailedError, MachineError
    from imgbuild.publishing.session import open_session

    with open_session(project, wish, say) as session:
        family = session.run()
        name = session.registry.name
    if as_json:
        typer.echo(json.dumps(pushed_json(name, family), indent=2))
    elif family.published:
        typer.echo("\n".join(pushed_lines(name, family)))
    if family.errors:
        said = "\n".join(f"{name}: {error}" for name, error in family.errors.items())
        machine = any(isinstance(error, MachineError) for error in family.errors.values())
        raise (MachineError if machine else CheckFailedError)(said)


def _plan(project: "Project", wish: "Wish", *, as_json: bool) -> None:
    from imgbuild.cli.push_table import planned_json, planned_lines
    from imgbuild.publishing.session import open_session

    with open_session(project, wish, say, only_look=True) as session:
        planned = session.planned()
        name = session.registry.name
    if as_json:
        typer.echo(json.dumps(planned_json(name, planned), indent=2))
    else:
        typer.echo("\n".join(planned_lines(name, planned)))
