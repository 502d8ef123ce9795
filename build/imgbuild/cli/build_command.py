"""``imgbuild build``: build missing images, test them, and tag those that pass."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import echo, flag, info, option, print_result, select, takes_selection
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.text import align_rows, clock_time, count_text
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imgbuild.build.context import BuildContext
    from imgbuild.build.pull import PullSource
    from imgbuild.build.result import Build, BuildResult
    from imgbuild.plan.plan import PlanItem
    from imgbuild.suites.results import Report

#: For each option, the options that cannot be combined with it.
_EXCLUDED = {
    "--dry-run": ("--refresh",),
    "--offline": ("--refresh",),
    "--fetch": (
        *("--dry-run", "--no-test", "--keep-going", "--offline", "--step-timeout", "--builder"),
        *("--platform", "--buildkit-cache", "--pull", "--report", "--json"),
    ),
}
#: With more images than this, the table names only failed suites and counts the others.
BRIEF = 3


@takes_selection()
def build(
    selection: Selection,
    dry_run: bool = flag("--dry-run", "Show which images would be built and why; build nothing."),
    no_test: bool = flag("--no-test", "Tag images without running their suites."),
    keep_going: bool | None = option(
        "--keep-going/--fail-fast",
        "After a failure, build the other images or stop. Default: stop; with --all, build them.",
    ),
    jobs: int = options.JOBS,
    refresh: bool = flag(
        "--refresh",
        "Make base images again, with the latest updates. With --fetch, look for newer packages.",
    ),
    fetch: Path | None = option(
        "--fetch DIR", "Download all inputs into this folder, for --offline; build nothing."
    ),
    offline: Path | None = option(
        "--offline DIR", "Read all inputs from this folder of --fetch; use no network."
    ),
    step_timeout: str | None = option(
        "--step-timeout DURATION",
        "Time limit for each build step, for example 90s, 30m or 1h; 0 means no limit. Default: "
        "engine.step_timeout in the settings.",
    ),
    builder: list[str] | None = options.BUILDER,
    platform: str | None = options.PLATFORM,
    buildkit_cache: str | None = option(
        "--buildkit-cache REPOSITORY",
        "Repository for BuildKit's layer cache (read and write). Format: HOST[:PORT]/REPOSITORY.",
    ),
    pull: bool = flag(
        "--pull", "Pull images that are published with the same inputs instead of building them."
    ),
    source: str | None = options.repository("--from", "Repository for --pull."),
    report: Path | None = option(
        "--report DIR",
        "Folder for the results of the suites, with a subfolder per image.",
        file_okay=False,
    ),
    as_json: bool = options.JSON,
    checkout: Project = options.PROJECT,
) -> None:
    """Build missing images, run their suites, and tag those that pass.

    Without options, the command builds the default image of the matrix.

    Example: imgbuild build --tf 2.2 --gpu
    """
    from imgbuild.build.context import BuildOptions, open_context
    from imgbuild.suites.container import require_docker_client

    given = {
        "--dry-run": dry_run,
        "--no-test": no_test,
        "--keep-going": keep_going is not None,
        "--refresh": refresh,
        "--fetch": fetch,
        "--offline": offline,
        "--step-timeout": step_timeout,
        "--builder": builder,
        "--platform": platform,
        "--buildkit-cache": buildkit_cache,
        "--pull": pull,
        "--report": report,
        "--json": as_json,
    }
    _refuse_combinations(given)
    if fetch:
        from imgbuild.cli.fetch_inputs import fetch_inputs

        fetch_inputs(fetch, selection, checkout, refresh=refresh)
        return
    if source is not None and not pull:
        raise InputError("--from requires --pull.")
    if offline and not offline.is_dir():
        raise InputError(
            f"--offline {offline}: no such folder. Fill one with `imgbuild build --fetch`."
        )
    images = select(checkout, selection)
    if keep_going is None:
        keep_going = selection.everything
    build_options = BuildOptions(
        test=not no_test,
        keep_going=keep_going,
        jobs=jobs,
        refresh_base=refresh,
        offline=offline.absolute() if offline else None,
        step_seconds=options.seconds("--step-timeout", step_timeout),
        reports=report.absolute() if report else None,
        builders=tuple(builder or ()),
        buildkit_cache=_repository(buildkit_cache),
    )
    if not (dry_run or no_test):
        require_docker_client()
    with ExitStack() as stack:
        repository = None
        if pull:
            from imgbuild.build.pull import open_source

            settings = checkout.settings
            repository = stack.enter_context(open_source(source, settings, info))
        own_settings = checkout.settings.with_builders(build_options.builders)
        images = options.for_platform(
            images, platform, own_settings, everything=selection.everything
        )
        opened = open_context(checkout, images, build_options, info, lock=not dry_run)
        context = stack.enter_context(opened)
        if dry_run:
            _plan(context, repository, as_json=as_json)
        else:
            _build(context, repository, as_json=as_json)


def _refuse_combinations(given: "Mapping[str, object]") -> None:
    """Raise InputError if two of the given options cannot be combined."""
    for option_name, excluded in _EXCLUDED.items():
        for other in excluded:
            if given[option_name] and given[other]:
                raise InputError(f"{option_name} cannot be combined with {other}.")


def _repository(name: str | None) -> str | None:
    from imgbuild.net.repository import parse_repository

    if not name:
        return None
    repository = parse_repository(name, "--buildkit-cache")
    return str(repository)


def _plan(context: "BuildContext", source: "PullSource | None", *, as_json: bool) -> None:
    items = context.plan(test=context.options.test)
    if source:
        from imgbuild.build.pull import predict_pull

        items = tuple(predict_pull(item, source) for item in items)
    rows = [(item.image.name, f"{item.action:<7}", item.reason) for item in items]
    lines = align_rows(rows)
    with_work = sum(item.has_work for item in items)
    if with_work:
        lines.append(f"{with_work} of {len(items)} images need to be built or tested.")
    else:
        lines.append(_describe_idle(items))
    result = [item.as_json() for item in items]
    print_result(result, lines, as_json=as_json)


def _build(context: "BuildContext", source: "PullSource | None", *, as_json: bool) -> None:
    from imgbuild.build.run import build_images
    from imgbuild.cli.usage import usage_lines

    made = build_images(context, source)
    rows = [result.as_json() for result in made.results]
    table = build_lines(made)
    print_result(rows, [table], as_json=as_json)
    if failure := made.failure():
        raise failure
    if not as_json:
        images = [result.item.image for result in made.results]
        usage = usage_lines(images, context.engine.host)
        echo(usage)


def build_lines(build: "Build") -> str:
    """Return the table of a finished build, with the steps and the verdict of each image."""
    results = build.results
    items = [result.item for result in results]
    had_work = any(item.has_work for item in items)
    if len(items) == build.planned and not had_work:
        return _describe_idle(items)
    brief = len(results) > BRIEF
    rows: list[tuple[str, ...]] = [("image", "verdict", "done", "time", "size", "suites")]
    for result in results:
        row = _make_row(result, brief=brief)
        rows.append(row)
    lines = align_rows(rows)
    for result in results:
        if result.report:
            lines += [f"{result.name}: {note}" for note in result.report.notes]
    if build.planned > 1 and results:
        counts = Counter(map(_describe_verdict, results))
        totals = ", ".join(f"{count} {word}" for word, count in counts.items())
        lines.append(f"{count_text(len(results), 'image')}: {totals}.")
    if missing := build.planned - len(results):
        stopped = build.stop or any(result.ends_build(keep_going=True) for result in results)
        hint = "" if stopped else " (use --keep-going to build the others)"
        count = count_text(missing, "image")
        lines.append(f"Not started: {count}{hint}.")
    return "\n".join(lines)


def _make_row(result: "BuildResult", *, brief: bool) -> tuple[str, ...]:
    verdict = _describe_verdict(result)
    done = ", ".join(_done(result))
    times = [seconds for seconds in (result.build_seconds, result.test_seconds) if seconds]
    time = " + ".join(map(clock_time, times))
    size = f"{result.size / 1e6:.0f} MB" if result.size else ""
    suites = ""
    if result.report:
        suites = _describe_suites(result.report, brief=brief)
    return result.name, verdict, done, time, size, suites


def _done(result: "BuildResult") -> "Iterator[str]":
    """Yield the steps that this build completed, even if the image got no tag."""
    action = result.item.action
    if action == "build" and result.image_id is not None:
        where = f" on {result.builder}" if result.builder else ""
        yield f"built{where}"
    if result.report is not None:
        yield "tested"
    if action == "tag" and result.tagged:
        yield "tagged"


def _describe_verdict(result: "BuildResult") -> str:
    return "tagged" if result.state == "done" else result.state


def _describe_suites(report: "Report", *, brief: bool) -> str:
    """Return the result of each suite; if ``brief``, for example ``horovod FAILED, 12 passed``."""
    words, others = list[str](), Counter[str]()
    for suite in report.suites:
        if not brief or suite.failures or suite.timed_out:
            words.append(f"{suite.suite} {suite.word}")
        else:
            others[suite.word] += 1
    words += [f"{count} {word}" for word, count in others.items()]
    return ", ".join(words)


def _describe_idle(items: "Sequence[PlanItem]") -> str:
    names = ", ".join(item.image.tags[0] for item in items)
    count = "1 image is" if len(items) == 1 else f"{len(items)} images are"
    return f"Nothing to do: {count} up to date ({names})."
