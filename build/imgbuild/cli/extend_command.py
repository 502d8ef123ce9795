"""``imgbuild extend``: add packages, files and settings to an image."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from imgbuild.cli import options
from imgbuild.cli.options import echo, flag, info, option, select, takes_selection
from imgbuild.errors import ImgbuildError, InputError
from imgbuild.matrix.selection import Selection
from imgbuild.project import Project
from imgbuild.text import clock_time, counted, size_text
from imgbuild.user_folders import state_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from imgbuild.build.context import BuildOptions
    from imgbuild.build.source_metadata import MetadataReader
    from imgbuild.dockerfile.lockfile import Lock
    from imgbuild.extend.base_image import BaseImage
    from imgbuild.extend.conda_file import CondaPackages
    from imgbuild.extend.extended import Extended
    from imgbuild.extend.extension import Extension
    from imgbuild.sources import Source


@takes_selection(without="everything")
def extend(
    selection: Selection,
    file: Path | None = typer.Option(
        None, "--file", "-f", metavar="FILE", help="Read the options from a YAML file."
    ),
    tag: str | None = typer.Option(
        None, "--tag", "-t", metavar="NAME:TAG", help="The name of the result."
    ),
    base: str | None = option("--base IMAGE", "Extend this image, by its reference."),
    pip: list[str] | None = option("--pip REQUIREMENT", "A Python package; repeatable."),
    requirements: list[str] | None = option(
        "--requirements FILE", "Packages in pip's format; repeatable."
    ),
    keep_image: bool = flag(
        "--keep-image", "Put aside requirements that differ from the image's packages."
    ),
    conda_file: str | None = option(
        "--conda-file FILE", "Packages of an environment.yml, through pip."
    ),
    apt: list[str] | None = option("--apt PACKAGE", "A package of the system; repeatable."),
    build_apt: list[str] | None = option(
        "--build-apt PACKAGE", "A package of the system, only for builds of wheels; repeatable."
    ),
    env: list[str] | None = option("--env NAME=VALUE", "A variable; repeatable. Never a secret."),
    copy: list[str] | None = option("--copy SOURCE:TARGET", "Files to copy; repeatable."),
    user: str | None = option("--user USER", "Default user of the image."),
    lock: Path | None = option(
        "--lock FILE", "The lock of what is added. Default: FILE.lock.txt or TAG.lock.txt."
    ),
    upgrade: bool = flag("--upgrade", "Take the newest versions that fit, not the locked ones."),
    print_only: bool = flag("--print", "Print the Dockerfile; build nothing."),
    test: str | None = option(
        "--test SET",
        "The base's suites to run: short (seconds) or all. Default: all if packages of the base "
        "are replaced, else short.",
    ),
    no_test: bool = flag("--no-test", "Tag without running the base's suites."),
    jobs: int = options.JOBS,
    builder: list[str] | None = options.BUILDER,
    checkout: Project = options.PROJECT,
) -> None:
    """Add packages, files and settings to an image, locked and tested.

    Packages that do not fit the base's own are refused before anything is built.
    """
    from imgbuild.build.context import BuildOptions
    from imgbuild.extend.extension import extension_of, read_extension

    if wrong := [one for one in env or () if "=" not in one]:
        raise InputError(f"--env {wrong[0]}: give NAME=VALUE.")
    variables = dict(one.partition("=")[::2] for one in env or ())
    values: dict[str, object] = {"base": base, "pip": pip, "requirements": requirements}
    values |= {"keep_image": keep_image, "conda_file": conda_file, "apt": apt}
    values |= {"build_apt": build_apt, "env": variables, "copy": copy, "user": user}
    set_options = {key: value for key, value in values.items() if value}
    if file and (set_options or selection != Selection()):
        raise InputError(
            f"--file {file} replaces the other options: write them there. Only --tag, --lock, "
            "--upgrade, --print, --test, --no-test, --jobs and --project can be used with it."
        )
    extension = read_extension(file) if file else extension_of(set_options)
    if tag:
        extension = extension.model_copy(update={"tag": extension_of({"tag": tag}).tag})
    if test and no_test:
        raise InputError("Use either --test or --no-test.")
    if test or no_test:
        choice = extension_of({"test": "none" if no_test else test}).test
        extension = extension.model_copy(update={"test": choice})
    if not extension.tag and not print_only:
        raise InputError("Name the result: --tag NAME:TAG, or `tag` in the file.")
    selection = extension.selection if file else selection
    if extension.base and selection != Selection():
        raise InputError(f"The base is {extension.base}; leave out what selects another: --tf, …")
    name = file.stem if file else (extension.tag or "extend").rpartition("/")[2].partition(":")[0]
    folder = file.absolute().parent if file else Path.cwd()
    tested = extension.test != "none"
    builders = tuple(builder or ())
    build_options = BuildOptions(test=tested, jobs=jobs, builders=builders)
    lock = lock or folder / f"{name}.lock.txt"
    extended = (extension, selection, checkout, folder, lock, build_options)
    _extend(*extended, upgrade=upgrade, print_only=print_only)


def _extend(
    extension: "Extension",
    selection: Selection,
    project: Project,
    folder: Path,
    lock_path: Path,
    build_options: "BuildOptions",
    *,
    upgrade: bool,
    print_only: bool,
) -> None:
    """Find the base, lock what is added, then build or print; copies are from ``folder``."""
    from contextlib import ExitStack

    from imgbuild.build.context import open_context
    from imgbuild.build.prepare import provide_archive_base
    from imgbuild.build.source_metadata import MetadataReader
    from imgbuild.extend.base_image import family_base, referenced_base
    from imgbuild.extend.distributions import distributions_context, find_distributions
    from imgbuild.extend.extended import build_extension, extension_dockerfile, requested_names
    from imgbuild.extend.extension import check_use
    from imgbuild.extend.requirement_files import wheel_paths
    from imgbuild.matrix.images import all_images
    from imgbuild.matrix.load import load_matrix
    from imgbuild.sites import Sites
    from imgbuild.suites.container import require_docker_client

    matrix = load_matrix(project.matrix)
    check_use(extension, folder, matrix.repository)
    # Of a base that the matrix does not have, any image says how this machine builds.
    images = all_images(matrix)[:1] if extension.base else select(project, selection)
    if len(images) > 1:
        raise InputError(f"One image is extended; {len(images)} are selected.")
    with ExitStack() as stack:
        base, context = family_base(images[0], project), None
        if extension.base or extension.downloads_apt or not print_only:
            if extension.base or (build_options.test and not print_only):
                require_docker_client()
            context = stack.enter_context(open_context(project, images, build_options, info))
            base = family_base(context.images[0], project)
        if context and extension.base:
            base = referenced_base(extension.base, context)
        elif context and not print_only:
            base = replace(base, id=context.need_own(context.images[0]).id)
        else:
            base = _located(base, project)
        extension, requested = _requested(extension, folder, base)
        lock, wheels, distributions = None, wheel_paths(requested), list["Source"]()
        sites = Sites(matrix.upstream_urls, project.settings)
        if requested:
            # Only an image that the engine has can say what its Python makes of a package.
            metadata = stack.enter_context(MetadataReader(project, matrix, sites, info, base.id))
            lock = _lock(requested, base, lock_path, metadata, folder, upgrade=upgrade)
            with_uv = print_only or not (context and context.inputs.uv)
            distributions += find_distributions(lock, wheels, base, metadata, with_uv=with_uv)
            _announce_compilations(distributions)
        if not context or print_only:
            archive = None
            if context and extension.downloads_apt:
                archive = provide_archive_base(base.name, base.system, context)
            values = (extension, base, lock, wheels, images[0], project)
            echo(extension_dockerfile(*values, distributions, archive).rstrip())
            return
        made = build_extension(
            *(extension, base, lock, wheels),
            *(distributions_context(distributions, sites), folder, context),
            requested=requested_names(requested),
        )
        echo(result_lines(made, base, context.engine.host))


def _announce_compilations(distributions: "Iterable[Source]") -> None:
    if sources := [one.name for one in distributions if not one.name.endswith(".whl")]:
        info(f"to compile, because no release that fits has a wheel: {', '.join(sources)}")


def _requested(
    extension: "Extension", folder: Path, base: "BaseImage"
) -> "tuple[Extension, tuple[str, ...]]":
    """Return all requirements, and the extension with the variables of its conda file.

    InputError: something cannot fit the base, whatever uv finds.
    """
    from imgbuild.extend.extension import wanted_packages
    from imgbuild.extend.requirement_files import RequirementReader
    from imgbuild.extend.system_packages import check_apt

    check_apt(extension.apt, base)
    extension, conda = _read_conda(extension, folder, base)
    return extension, wanted_packages(extension, RequirementReader(base, folder, info), conda)


def _read_conda(
    extension: "Extension", folder: Path, base: "BaseImage"
) -> "tuple[Extension, CondaPackages]":
    """Return the extension with the variables of its conda file, and the packages in that file."""
    from imgbuild.extend.extension import read_conda_packages

    conda = read_conda_packages(extension, folder, base.python)
    for note in conda.notes(base):
        info(note)
    variables = {**conda.variables, **extension.env}
    return extension.model_copy(update={"env": variables}), conda


def _lock(
    requested: "Sequence[str]",
    base: "BaseImage",
    path: Path,
    reader: "MetadataReader",
    folder: Path,
    *,
    upgrade: bool,
) -> "Lock":
    from imgbuild.dockerfile.requirements import index_environment
    from imgbuild.extend.additions import lock_additions

    info(f"resolving {counted(len(requested), 'requirement')} against {base.name}")
    where = (path, index_environment(reader.sites), reader.read)
    lock = lock_additions(requested, base, *where, folder=folder, upgrade=upgrade)
    added = ", ".join(f"{name} {version}" for name, version in lock.versions.items())
    info(f"{path.name}: adds {added or 'nothing, the base has all of it'}")
    return lock


def _located(base: "BaseImage", project: Project) -> "BaseImage":
    """Return the base with its id, if there is an engine that has it as an own image."""
    from imgbuild.engine.client import open_engine
    from imgbuild.suites.results import ReportStore

    store = ReportStore(state_dir() / "reports")
    with suppress(ImgbuildError), open_engine(project.settings.engine) as engine:
        stored = engine.inspect(base.reference)
        if stored and store.is_own(stored.id):
            return replace(base, id=stored.id)
    return base


def result_lines(made: "Extended", base: "BaseImage", host: str | None) -> str:
    """Return what was made, of what size and in which time, and how to use it."""
    from imgbuild.cli.build_command import run_words

    tested = "no suite was run in it"
    if made.report:
        tested = f"{counted(len(made.report.suites), 'suite')} of {base.name} passed in it"
    shell = "bash" if base.image else "sh"
    size, time = size_text(made.size), clock_time(made.seconds)
    return (
        f"{made.tag}: {size} on {base.name}, {time}; {tested}.\n\nUse it:\n"
        f"  {run_words(host, base.image)} -it {made.tag} {shell}"
    )
