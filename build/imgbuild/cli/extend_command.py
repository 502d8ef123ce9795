"""``imgbuild extend``: add packages, files and settings to an image."""

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.cli import options
from imgbuild.cli.options import echo, flag, info, option, select, takes_selection
from imgbuild.core.errors import ImgbuildError, InputError
from imgbuild.core.project import Project
from imgbuild.core.text import clock_time, count_text, size_text, slug
from imgbuild.core.user_folders import state_dir
from imgbuild.matrix.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from imgbuild.build.context import BuildContext, BuildOptions
    from imgbuild.build.source_metadata import MetadataReader
    from imgbuild.core.sources import Source
    from imgbuild.extend.base_image import BaseImage
    from imgbuild.extend.extension import Extension
    from imgbuild.inputs.base import Base
    from imgbuild.locks.lockfile import Lock
    from imgbuild.matrix.images import Image
    from imgbuild.suites.results import Report


@takes_selection(without="everything")
def extend(
    selection: Selection,
    file: Path | None = option("--file -f FILE", "Read the options from this YAML file."),
    tag: str | None = option(
        "--tag -t NAME:TAG", "Name of the new image. Default: local/FOLDER:VERSION."
    ),
    pip: list[str] | None = option(
        "--pip REQUIREMENT", "Add one or more Python packages; repeatable."
    ),
    requirements: list[str] | None = option(
        "--requirements -r FILE", "Add the packages of a requirements file of pip; repeatable."
    ),
    keep_image: bool = flag(
        "--keep-image", "Put aside requirements that differ from the image's packages."
    ),
    conda_file: str | None = option(
        "--conda-file FILE", "Add the packages of an environment.yml, as pip packages."
    ),
    apt: list[str] | None = option("--apt PACKAGE", "Add a system package; repeatable."),
    build_apt: list[str] | None = option(
        "--build-apt PACKAGE", "Use a system package only to build wheels; repeatable."
    ),
    env: list[str] | None = option(
        "--env NAME=VALUE", "Set a variable; repeatable. Do not use it for secrets."
    ),
    copy: list[str] | None = option(
        "--copy SOURCE:TARGET", "Copy a file or a folder into the image; repeatable."
    ),
    user: str | None = option("--user USER", "Default user of the image."),
    lock: Path | None = option(
        "--lock FILE",
        "Lock of the added packages. Default: NAME.lock.txt, named like the file of --file or the "
        "tag.",
    ),
    upgrade: bool = flag("--upgrade", "Use the newest versions that fit, not the locked ones."),
    print_only: bool = flag("--print", "Print the Dockerfile; build nothing."),
    test: str | None = option(
        "--test SET",
        "Suites of the base to run: short (takes seconds) or all. Default: all if packages of the "
        "base are replaced, else short.",
    ),
    no_test: bool = flag("--no-test", "Tag the image without running suites."),
    jobs: int = options.JOBS,
    builder: list[str] | None = options.BUILDER,
    checkout: Project = options.PROJECT,
) -> None:
    """Add packages, files and settings to an image, and test the result.

    IMAGE can be any image with TensorFlow: from the list, the engine or a registry. Python packages
    are locked. Packages that conflict with the packages of the image are refused before the build.

    Example: imgbuild extend 2.2 --pip pandas keras==2.3.1 -t me/train:1
    """
    from imgbuild.build.context import BuildOptions
    from imgbuild.extend.extension import parse_extension, read_extension

    base = None
    if not file:
        selection, more = _split_words(selection)
        if more and not pip:
            words = " ".join(more)
            raise InputError(f"`extend` takes one image. Write packages after --pip: --pip {words}")
        pip = [*(pip or ()), *more]
        selection, others = options.split_names(checkout, selection)
        base = others[0] if others else None
    variables = _parse_variables(env or ())
    values: dict[str, object] = {"base": base, "pip": pip, "requirements": requirements}
    values |= {"keep_image": keep_image, "conda_file": conda_file, "apt": apt}
    values |= {"build_apt": build_apt, "env": variables, "copy": copy, "user": user}
    set_options = {key: value for key, value in values.items() if value}
    if file and (set_options or selection != Selection()):
        raise InputError(
            f"--file {file} replaces the other options: write them in this file. Only --tag, "
            "--lock, --upgrade, --print, --test, --no-test, --jobs, --builder and --project can be "
            "combined with it."
        )
    extension = read_extension(file) if file else parse_extension(set_options)
    if tag:
        named = parse_extension({"tag": tag})
        extension = extension.model_copy(update={"tag": named.tag})
    if test and no_test:
        raise InputError("Use either --test or --no-test.")
    if test or no_test:
        suites = "none" if no_test else test
        choice = parse_extension({"test": suites})
        extension = extension.model_copy(update={"test": choice.test})
    selection = extension.selection if file else selection
    if extension.base and selection != Selection():
        raise InputError(
            f"The base is {extension.base}. Omit --tf and the other selection options."
        )
    folder = file.absolute().parent if file else Path.cwd()
    if file:
        name = file.stem
    elif extension.tag:
        name = _name_lock(extension.tag)
    else:
        name = "extend" if print_only else _name_result(folder)
    build_options = BuildOptions(
        test=extension.test != "none",
        jobs=jobs,
        builders=tuple(builder or ()),
    )
    _extend(
        extension,
        selection,
        checkout,
        folder=folder,
        lock_path=lock or folder / f"{name}.lock.txt",
        build_options=build_options,
        upgrade=upgrade,
        print_only=print_only,
    )


def _split_words(selection: Selection) -> tuple[Selection, tuple[str, ...]]:
    """Return the selection of the base, and the words that name packages, as after ``--pip``."""
    others = replace(selection, names=())
    if others != Selection():
        return others, selection.names
    return replace(selection, names=selection.names[:1]), selection.names[1:]


def _name_result(folder: Path) -> str:
    """Turn the name of a folder into the last part of a repository name."""
    return slug(folder.name, "image")


def _parse_variables(texts: "Iterable[str]") -> dict[str, str]:
    """Return the variables of ``--env``; InputError: a variable has no value."""
    variables = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"--env {text}: give NAME=VALUE.")
        variables[name] = value
    return variables


def _name_lock(tag: str) -> str:
    """Return the default name of a lock: the last part of the tag's repository."""
    _, _, repository_and_tag = tag.rpartition("/")
    name, _, _ = repository_and_tag.partition(":")
    return name


def _extend(
    extension: "Extension",
    selection: Selection,
    project: Project,
    *,
    folder: Path,
    lock_path: Path,
    build_options: "BuildOptions",
    upgrade: bool,
    print_only: bool,
) -> None:
    """Find the base, lock the added packages, and build the image or print its Dockerfile.

    Relative paths start in ``folder``.
    """
    from contextlib import ExitStack

    from imgbuild.build.context import open_context
    from imgbuild.build.source_metadata import MetadataReader
    from imgbuild.extend.distributions import distributions_context, find_distributions
    from imgbuild.extend.extended import build_extension, extension_dockerfile, requested_names
    from imgbuild.extend.extension import check_use
    from imgbuild.extend.requirement_files import wheel_paths
    from imgbuild.matrix.images import all_images
    from imgbuild.net.sites import Sites
    from imgbuild.suites.container import require_docker_client

    matrix = options.load_matrix(project)
    check_use(extension, folder, matrix.repository)
    # If the base is not in the matrix, any image of the matrix provides the build settings.
    images = (
        all_images(matrix)[:1]
        if extension.base
        else options.prefer_own_platform(select(project, selection), project.settings)
    )
    if len(images) > 1:
        raise InputError(f"`extend` takes one image, but {len(images)} are selected.")
    if not extension.tag and not print_only:
        extension = _with_default_tag(extension, images[0], folder)
    with ExitStack() as stack:
        context = None
        if extension.base or extension.downloads_apt or not print_only:
            starts_containers = build_options.test and not print_only
            if extension.base or starts_containers:
                require_docker_client()
            context = stack.enter_context(open_context(project, images, build_options, info))
        base = _find_base(extension, images[0], project, context, print_only=print_only)
        extension, requested = _read_requirements(extension, folder, base)
        lock = None
        wheels = wheel_paths(requested)
        distributions = list["Source"]()
        sites = Sites(matrix.upstream_urls, project.settings)
        if requested:
            # If the engine has the base, its Python reads the metadata of source distributions.
            metadata = stack.enter_context(MetadataReader(project, matrix, sites, info, base.id))
            lock = _lock(requested, base, lock_path, metadata, folder, upgrade=upgrade)
            with_uv = print_only or not (context and context.inputs.uv_for(base.engine_platform))
            distributions += find_distributions(lock, wheels, base, metadata, with_uv=with_uv)
            _announce_compilations(distributions)
        if not context or print_only:
            text = extension_dockerfile(
                extension,
                base,
                lock,
                wheels,
                images[0],
                project,
                distributions=distributions,
                archive=_provide_archive(extension, base, context),
            )
            echo(text.rstrip())
            return
        files = distributions_context(distributions, sites)
        started = time.monotonic()
        size, report = build_extension(
            extension,
            base,
            lock,
            wheels,
            context,
            distributions=files,
            folder=folder,
            requested=requested_names(requested),
        )
        took = f"{size_text(size)} on {base.name}, {clock_time(time.monotonic() - started)}"
        echo(f"{extension.tag}: {took}; {_suites_text(report, base)}.")
        kept = lock_path if lock else None
        echo(_usage_text(str(extension.tag), base, context.engine.host, kept))


def _provide_archive(
    extension: "Extension", base: "BaseImage", context: "BuildContext | None"
) -> "Base | None":
    """Return the base that downloads the system packages of a printed Dockerfile, if any."""
    from imgbuild.build.prepare import provide_archive_base

    if context and extension.downloads_apt:
        return provide_archive_base(base.name, base.system, context, base.engine_platform)
    return None


def _suites_text(report: "Report | None", base: "BaseImage") -> str:
    if not report:
        return "no suites were run"
    count = count_text(len(report.suites), "suite")
    return f"{count} of {base.name} passed"


def _with_default_tag(extension: "Extension", image: "Image", folder: Path) -> "Extension":
    """Return the extension with a default tag: the folder's name and the base's TensorFlow."""
    from imgbuild.extend.extension import parse_extension

    version = "1" if extension.base else image.minor
    named = parse_extension({"tag": f"local/{_name_result(folder)}:{version}"})
    return extension.model_copy(update={"tag": named.tag})


def _usage_text(tag: str, base: "BaseImage", host: str | None, lock_path: Path | None) -> str:
    from imgbuild.cli.usage import docker_run_words

    shell = "bash" if base.image else "sh"
    words = docker_run_words(host, base.image)
    text = f"\nUse it:\n  {words} -it {tag} {shell}"
    text += f"\nRun a program in it: `imgbuild run {tag} --exec -- python train.py`"
    if lock_path:
        text += f"\nCommit {lock_path} so that the same command adds the same versions."
    return text


def _announce_compilations(distributions: "Iterable[Source]") -> None:
    names = [file.name for file in distributions]
    sources = [name for name in names if not name.endswith(".whl")]
    if sources:
        info(f"compiling, because no fitting release has a wheel: {', '.join(sources)}")


def _read_requirements(
    extension: "Extension", folder: Path, base: "BaseImage"
) -> "tuple[Extension, tuple[str, ...]]":
    """Return the extension with the variables of its conda file, and all requirements.

    InputError: a package conflicts with the base, so that uv cannot find a solution.
    """
    from imgbuild.extend.extension import read_conda_packages, requested_lines
    from imgbuild.extend.requirement_files import judge_lines
    from imgbuild.extend.system_packages import check_apt

    check_apt(extension.apt, base)
    conda = read_conda_packages(extension, folder, base.python)
    for note in conda.notes(base):
        info(note)
    lines = requested_lines(extension, folder, conda)
    requirements = judge_lines(lines, base, folder, info, keep_image=extension.keep_image)
    variables = {**conda.variables, **extension.env}
    complete = extension.model_copy(update={"env": variables})
    return complete, requirements


def _lock(
    requested: "Sequence[str]",
    base: "BaseImage",
    path: Path,
    reader: "MetadataReader",
    folder: Path,
    *,
    upgrade: bool,
) -> "Lock":
    from imgbuild.extend.additions import lock_additions
    from imgbuild.locks.requirements import index_environment

    count = count_text(len(requested), "requirement")
    info(f"resolving {count} against {base.name}")
    lock = lock_additions(
        requested,
        base,
        path,
        environment=index_environment(reader.sites),
        read_metadata=reader.read,
        folder=folder,
        upgrade=upgrade,
    )
    packages = [f"{name} {version}" for name, version in lock.versions.items()]
    added = ", ".join(packages) or "nothing, because the base has all packages"
    info(f"{path.name}: adds {added}")
    return lock


def _find_base(
    extension: "Extension",
    image: "Image",
    project: Project,
    context: "BuildContext | None",
    *,
    print_only: bool,
) -> "BaseImage":
    """Return the base: ``image``, unless the extension names another one."""
    from imgbuild.extend.base_image import family_base, inspect_base

    if context and extension.base:
        return inspect_base(extension.base, context)
    planned = context.images[0] if context else image
    base = family_base(planned, project)
    if context and not print_only:
        stored = context.need_own(planned)
        return replace(base, id=stored.id)
    return _locate_base(base, project)


def _locate_base(base: "BaseImage", project: Project) -> "BaseImage":
    """Return the base; with its id if the engine has it and this machine built or pulled it."""
    from imgbuild.engine.client import open_engine
    from imgbuild.suites.store import ReportStore

    store = ReportStore(state_dir() / "reports")
    with suppress(ImgbuildError), open_engine(project.settings.engine) as engine:
        stored = engine.inspect(base.reference)
        if stored and store.is_own(stored.id):
            return replace(base, id=stored.id)
    return base
