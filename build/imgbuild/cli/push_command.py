"""``imgbuild push``: publish images whose suites passed."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from imgbuild.cli import options
from imgbuild.cli.options import info, option, print_json, select, takes_selection
from imgbuild.errors import CheckFailedError, MachineError
from imgbuild.matrix.selection import Selection
from imgbuild.text import fitted, wrapped

if TYPE_CHECKING:
    from imgbuild.publish.push import PushedImage, PushResult

#: Digits of a digest that are shown, as engines show them.
_DIGITS = 12
#: How the steps begin that move a tag.
_MOVE = ("move ", "moved ")


@takes_selection()
def push(
    selection: Selection,
    to: Annotated[
        str | None,
        option(
            "--to HOST[:PORT]/REPOSITORY",
            "The target. Default: publishing.repository of the settings.",
        ),
    ] = None,
    release: Annotated[
        str | None,
        option(
            "--release YYYYMMDD.N",
            "The release in the immutable tag. Default: the image's own if it is published, "
            "else the next of today.",
        ),
    ] = None,
    plan: Annotated[
        bool, option("--plan", "Show what would be published; publish nothing.")
    ] = False,
    allow_substituted: Annotated[
        bool,
        option(
            "--allow-substituted",
            "Also images with inputs other than the matrix's, such as a CPython of this "
            "machine; their record says so.",
        ),
    ] = False,
    allow_skipped: Annotated[
        list[str] | None,
        option(
            "--allow-skipped SUITE",
            "Also images that skipped this suite, such as gpu_runs; repeatable.",
        ),
    ] = None,
    jobs: Annotated[int, option("--jobs N", "How many images to push at once.", min=1, max=32)] = 3,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Publish images whose suites passed.

    Each gets one immutable tag with all versions, then the moving tags. Nothing is sent twice; the
    same command completes an interrupted push. Log in with `docker login HOST`.
    """
    from imgbuild.publish.candidate import Allowance
    from imgbuild.publish.push import PushOptions, open_push
    from imgbuild.publish.release import check_release

    allowance = Allowance(allow_substituted, tuple(allow_skipped or ()))
    allowance.check()
    if release is not None:
        check_release(release)
    opened = options.open_project(project)
    wanted = PushOptions(select(opened, selection), to, release, allowance, jobs)
    with open_push(opened, wanted, info, dry_run=plan) as session:
        name = session.registry.name
        if plan:
            planned = session.dry_run()
            if as_json:
                print_json(planned_json(name, planned))
            else:
                typer.echo("\n".join(planned_lines(name, planned)))
            return
        result = session.run()
    if as_json:
        print_json(pushed_json(name, result))
    elif result.pushed:
        typer.echo("\n".join(pushed_lines(name, result)))
    if result.errors:
        text = "\n".join(f"{name}: {error}" for name, error in result.errors.items())
        machine = any(isinstance(error, MachineError) for error in result.errors.values())
        raise (MachineError if machine else CheckFailedError)(text)


def planned_lines(repository: str, planned: "Sequence[PushedImage]") -> list[str]:
    """Return a line an image: what is to be done for it; below it the tags that it would get."""
    lines = [f"to {repository}:"]
    rows = fitted([(one.record.image, _brief(one.steps)) for one in planned])
    for row, one in zip(rows, planned, strict=True):
        moves = (step.partition(" ")[2] for step in one.steps if step.startswith(_MOVE))
        lines += [*row, *wrapped((one.record.tag, *moves)), *_kept(one)]
    return lines


def planned_json(repository: str, planned: "Sequence[PushedImage]") -> dict[str, Any]:
    """Return what is to be done for each image."""
    images = [
        {
            "image": one.record.image,
            "tag": one.record.tag,
            "to_do": list(one.steps),
            "left": list(one.kept),
        }
        for one in planned
    ]
    return {"repository": repository, "images": images}


def pushed_lines(repository: str, result: "PushResult") -> list[str]:
    """Return the table of what was done, each image's tags below it, and how to pull the first."""
    header = ("image", "digest", "MB", "done")
    lines, *rows = fitted([header, *(_row(one) for one in result.pushed)])
    for row, one in zip(rows, result.pushed, strict=True):
        elsewhere = {text.partition(" ")[0] for text in one.kept}
        moving = (tag for tag in one.record.moving if tag not in elsewhere)
        lines += [*row, *wrapped((one.record.tag, *moving)), *_kept(one)]
    done = sum(bool(one.steps) for one in result.pushed)
    failed = [f"{len(result.errors)} failed"] if result.errors else []
    counts = [f"{done} published", f"{len(result.pushed) - done} up to date", *failed]
    first = result.pushed[0].record
    usual = first.moving[-1] if first.moving else first.tag
    return [*lines, f"{', '.join(counts)}.", f"docker pull {repository}:{usual}"]


def pushed_json(repository: str, result: "PushResult") -> dict[str, Any]:
    """Return what was done, and what failed."""
    return {
        "repository": repository,
        "published": [
            {
                "image": one.record.image,
                "tag": one.record.tag,
                "moving": list(one.record.moving),
                "digest": one.record.digest,
                "size": one.record.size,
                "done": list(one.steps),
                "left": list(one.kept),
            }
            for one in result.pushed
        ],
        "failed": {name: str(error) for name, error in result.errors.items()},
    }


def _row(one: "PushedImage") -> tuple[str, ...]:
    digest = one.record.digest.removeprefix("sha256:")[:_DIGITS]
    return one.record.image, digest, f"{one.record.size / 1e6:.0f}", _brief(one.steps)


def _kept(one: "PushedImage") -> Iterable[str]:
    """Yield lines of the tags that stay at a later image."""
    for text in one.kept:
        yield from wrapped(text.split())


def _brief(steps: Sequence[str]) -> str:
    """Return the steps, with the number of the moved tags in place of their names."""
    moves = [step for step in steps if step.startswith(_MOVE)]
    words = [step for step in steps if step not in moves]
    if moves:
        verb = moves[0].partition(" ")[0]
        words.append(f"{verb} {len(moves)} {'tag' if len(moves) == 1 else 'tags'}")
    return ", ".join(words) or "up to date"
