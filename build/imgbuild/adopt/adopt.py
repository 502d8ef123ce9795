"""Build the image of a repository's program, start the program in it, test and tag it."""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from imgbuild.adopt.adoption import (
    FILE,
    LOCK,
    OWN_TAGS,
    Adoption,
    adoption_text,
    read_adoption,
    read_result,
    require_plain,
    result_path,
    write_adoption,
)
from imgbuild.adopt.choice import Decision
from imgbuild.adopt.decide import AdoptOptions, DecidedProgram
from imgbuild.adopt.failures import Start
from imgbuild.adopt.packages import adapt_base
from imgbuild.adopt.remedies import Remedy, find_build_remedy, find_remedy
from imgbuild.adopt.resolve import Resolution, find_missing_modules, resolve_as_of
from imgbuild.adopt.start import program_roots, start_program
from imgbuild.build.context import BuildContext, BuildOptions, open_context
from imgbuild.build.prepare import provide_archive_base, require_disk_space
from imgbuild.build.pull import open_source
from imgbuild.build.run import build_images
from imgbuild.build.source_metadata import MetadataReader
from imgbuild.core.errors import InputError
from imgbuild.core.files import (
    LARGEST_TEXT,
    ContentStore,
    json_sha256,
    sha256,
    work_folder,
    write_text,
)
from imgbuild.core.project import Project
from imgbuild.core.sources import Source
from imgbuild.core.user_folders import cache_dir
from imgbuild.dockerfile.labels import EXTENDS
from imgbuild.engine.client import Engine, open_engine
from imgbuild.engine.discovery import DEFAULT_HOST, docker_client
from imgbuild.engine.failure import BuildFailedError
from imgbuild.engine.gpus import find_gpus
from imgbuild.extend.distributions import distributions_context, find_distributions
from imgbuild.extend.extended import build_extension, extension_dockerfile, requested_names
from imgbuild.extend.extension import Extension, check_use, parse_extension
from imgbuild.extend.requirement_files import image_facts
from imgbuild.extend.system_packages import check_apt
from imgbuild.locks.requirements import index_environment
from imgbuild.matrix.gpus import compatibility, why_no_image
from imgbuild.matrix.images import Image
from imgbuild.net.sites import Sites
from imgbuild.suites.container import require_docker_client

Log = Callable[[str], None]
#: Limits for the remedies of one program: after a failure of the program, and of a compilation.
MOST_REMEDIES, MOST_COMPILATIONS = 3, 8
#: Lines that the program has not written: of a traceback, and of TensorFlow's library, in its own
#: format and in that of Abseil.
_NOT_OF_PROGRAM = re.compile(
    r"Traceback | |\d{4}-\d\d-\d\d [\d:.]+: [IWEF] \S+:\d+\] |[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\] |"
    r"WARNING: All log messages before absl::InitializeLog"
)
#: Characters of a build's output that are searched.
_LARGEST_LOG = 1 << 20


@dataclass(frozen=True)
class Adopted:
    """The image of a program, and how far the program got in it.

    - ``missing``: packages that the program needs and that cannot be had, and why
    - ``remedies``: the changes after the program failed, and their reasons
    - ``times``: seconds of each phase
    - ``is_unchanged``: nothing was done, because nothing has changed since the last time
    """

    program: DecidedProgram
    start: Start
    missing: tuple[tuple[str, str], ...] = ()
    remedies: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    times: dict[str, float] = field(default_factory=dict)
    is_unchanged: bool = False

    @property
    def exit_code(self) -> int:
        return 1 if self.missing or self.start.outcome == "fails" else 0


class _RetryError(Exception):
    """The program failed, or a package could not be compiled, and a remedy is known."""

    def __init__(self, remedy: Remedy) -> None:
        super().__init__(remedy.reason)
        self.remedy = remedy


def adopt_program(
    program: DecidedProgram, project: Project, options: AdoptOptions, log: Log
) -> Adopted:
    """Build, start, test and tag; write the decisions and the lock into the repository.

    CheckFailedError: a build step or a suite failed; nothing was tagged.
    InputError: a file of the repository cannot be used.
    MachineError: this machine cannot build the image, or cannot run a container.
    """
    require_docker_client()
    folder = program.repository.folder
    build_options = BuildOptions(jobs=options.jobs)
    require_plain(folder / FILE)
    require_plain(folder / LOCK, LARGEST_TEXT)
    if program.image.cuda:
        with open_engine(project.settings.engine) as engine:
            _tell_gpus(program.image, engine, log)
    provide_image(program.image, project, build_options, log)
    with ExitStack() as stack:
        context = stack.enter_context(open_context(project, (program.image,), build_options, log))
        stored = context.need_own(program.image)
        program = replace(program, base=replace(program.base, id=stored.id))
        _check_replaced(program, context, is_named=options.tag is not None)
        if program.is_recalled and (known := _recall_result(program, context)):
            return known
        require_disk_space([], context.engine)
        sites = Sites(program.image.matrix.upstream_urls, project.settings)
        reader = MetadataReader(project, program.image.matrix, sites, log, stored.id)
        metadata = stack.enter_context(reader)
        adopted = _build_until_it_starts(program, context, metadata, options)
    _keep_result(adopted, context)
    return adopted


def _tell_gpus(image: Image, engine: Engine, log: Log) -> None:
    """Say that the trial has no GPU, or which GPUs of this machine the image does not fit."""
    if engine.version().gpus is None:
        log("The engine offers no GPUs, so a trial has none.")
    elif (engine.host or DEFAULT_HOST).startswith("unix://"):
        for gpu in dict.fromkeys(find_gpus()[0]):
            if no_image := why_no_image(gpu.name):
                log(no_image)
                continue
            _, why = compatibility(image, gpu.capability, gpu.driver)
            if why:
                log(f"{gpu.name} and {image.name}: {why}.")


def _check_replaced(program: DecidedProgram, context: BuildContext, *, is_named: bool) -> None:
    """Say which image the new one replaces.

    InputError: it is an image that adopt has not made, and the user has not named the tag.
    """
    tag = program.adoption.tag
    stored = context.engine.inspect(tag)
    if stored is None or read_result(program.repository.folder).get("image") == stored.id:
        return
    is_adopted = tag.startswith(OWN_TAGS) and EXTENDS in stored.labels
    if not is_adopted and not is_named:
        raise InputError(
            f"The engine has another image of the name {tag}, which adopt has not made for this "
            "folder. Choose a name with --tag; the same name replaces the image."
        )
    context.log(f"{tag} is an image of another program, or of an older adopt. It is replaced.")


def provide_image(image: Image, project: Project, options: BuildOptions, log: Log) -> None:
    """Pull or build the image of the matrix if the engine lacks it.

    CheckFailedError, MachineError: as `build_images`.
    """
    with open_context(project, (image,), options, log) as context:
        stored = context.engine.inspect(image.tags[0])
        if stored and context.store.is_own(stored.id):
            return
    published = project.settings.publishing.repository
    way = f"pulled from {published} if it is there, else built" if published else "built"
    minutes = 10 if image.variant == "gpu" else 3
    log(f"The engine has no {image.name}. First it is {way}, which takes about {minutes} minutes.")
    with ExitStack() as stack:
        source = None
        if published:
            source = stack.enter_context(open_source(None, project.settings, log))
        context = stack.enter_context(open_context(project, (image,), options, log, lock=True))
        if failure := build_images(context, source).failure():
            raise failure


def _build_until_it_starts(
    program: DecidedProgram,
    context: BuildContext,
    metadata: MetadataReader,
    options: AdoptOptions,
) -> Adopted:
    remedies, compilations = list[str](), 0
    while True:
        may_retry = len(remedies) < MOST_REMEDIES
        try:
            adopted = _build_once(program, context, metadata, options, may_retry=may_retry)
        except _RetryError as error:
            remedies.append(error.remedy.reason)
            context.log(f"The program fails; the remedy: {error.remedy.reason}. Trying again.")
            program = _apply(error.remedy, program)
        except BuildFailedError as error:
            remedy = _find_build_remedy(error, program)
            if remedy is None or compilations == MOST_COMPILATIONS:
                raise
            compilations += 1
            context.log(f"{remedy.reason[:1].upper()}{remedy.reason[1:]}. Trying again.")
            program = _apply(remedy, program)
        else:
            return replace(adopted, remedies=tuple(remedies))


def _build_once(
    program: DecidedProgram,
    context: BuildContext,
    metadata: MetadataReader,
    options: AdoptOptions,
    *,
    may_retry: bool,
) -> Adopted:
    """Resolve, build, start, test and tag.

    _RetryError: the program fails, and a remedy is known; the image was removed.
    """
    folder, base, times = program.repository.folder, program.base, dict[str, float]()
    with _measure("resolve", times):
        resolution = _resolve(program, metadata, folder / LOCK)
        program = _with_resolution(program, resolution)
        lock, requested = resolution.lock, requested_names(resolution.requirements)
        _tell_packages(resolution, context.log)
        files = None
        if lock:
            with_uv = not context.inputs.uv_for(base.engine_platform)
            distributions = find_distributions(lock, (), base, metadata, with_uv=with_uv)
            files = distributions_context(distributions, metadata.sites)
            downloads = ContentStore(cache_dir() / "downloads")
            for module in find_missing_modules(program.modules, lock, downloads.find):
                name = program.modules[module]
                context.log(f"{name} has no module {module}: correct `pip` in {FILE}.")
    extension = make_extension(program)
    check_apt(extension.apt, base)
    started = time.monotonic()
    starts = list[Start]()

    def use(image_id: str) -> None:
        times["build"] = time.monotonic() - started
        with _measure("start", times):
            start = _start(program, resolution, image_id, context, options)
        for note in start.not_copied:
            context.log(f"not copied for the trial: {note}")
        remedy = _find_remedy(start, program, context.log) if may_retry else None
        if remedy:
            raise _RetryError(remedy)
        starts.append(start)

    size, report = build_extension(
        extension,
        base,
        lock,
        (),
        context,
        distributions=files,
        folder=folder,
        requested=requested,
        use=use,
    )
    times["test"] = time.monotonic() - started - times["build"] - times["start"]
    # An unchanged file keeps its comments.
    if not program.is_recalled or read_adoption(folder) != program.adoption:
        write_adoption(folder, program.adoption, program.decisions)
    optional = {str(canonicalize_name(name)) for name in program.adoption.optional}
    missing = [row for row in resolution.left_out if row[0] not in optional]
    return Adopted(
        program,
        starts[0],
        missing=tuple(missing),
        suites=tuple(suite.suite for suite in report.suites) if report else (),
        times={**times, "bytes": float(size)},
    )


def _tell_packages(resolution: Resolution, log: Log) -> None:
    """Say which packages are added, and which cannot be had."""
    versions = resolution.lock.versions if resolution.lock else {}
    added = ", ".join(f"{name} {version}" for name, version in versions.items())
    way = f" ({resolution.rung})" if resolution.rung else ""
    log(f"packages{way}: {added or 'none, because the image has all'}")
    for name, why in resolution.left_out:
        log(f"left out: {name}: {why}")
    for note in resolution.notes:
        log(f"note: {note}")


@contextmanager
def _measure(phase: str, times: dict[str, float]) -> Iterator[None]:
    began = time.monotonic()
    yield
    times[phase] = times.get(phase, 0.0) + time.monotonic() - began


def _resolve(program: DecidedProgram, metadata: MetadataReader, path: Path) -> Resolution:
    day = program.adoption.date
    return resolve_as_of(
        program.request,
        program.base,
        date.fromisoformat(day) if day else None,
        path,
        environment=index_environment(metadata.sites),
        read_metadata=metadata.read,
    )


def _with_resolution(program: DecidedProgram, resolution: Resolution) -> DecidedProgram:
    """Add the Debian packages of the locked packages, and a decision for each that is missing."""
    apt = tuple(sorted({*program.adoption.apt, *resolution.apt}))
    adoption = program.adoption.model_copy(update={"apt": apt})
    decisions = [*program.decisions]
    decisions += [
        Decision("package", name, f"left out: {why}") for name, why in resolution.left_out
    ]
    return replace(program, adoption=adoption, decisions=tuple(decisions))


def make_extension(program: DecidedProgram) -> Extension:
    """Return the extension of the image: Debian packages and the program's variables."""
    adoption = program.adoption
    variables = {"MPLBACKEND": "Agg"}
    if roots := program_roots(program.closure):
        variables["PYTHONPATH"] = ":".join(roots)
    extension = parse_extension(
        {
            "tag": adoption.tag,
            "apt": adoption.apt,
            "build_apt": adoption.build_apt,
            "env": variables,
        }
    )
    check_use(extension, program.repository.folder, program.image.matrix.repository)
    return extension


def _start(
    program: DecidedProgram,
    resolution: Resolution,
    image_id: str,
    context: BuildContext,
    options: AdoptOptions,
) -> Start:
    closure, shown = program.closure, list[str]()
    versions = {**program.base.packages}
    if resolution.lock:
        versions |= resolution.lock.versions

    def show_first(line: str) -> None:
        if not shown and line.strip() and not _NOT_OF_PROGRAM.match(line):
            shown.append(line)
            context.log(f"The program says: {line.strip()[:200]}")

    return start_program(
        docker_client(context.engine.host),
        image_id,
        program.repository.folder,
        closure,
        tag=program.adoption.tag,
        packages=versions,
        seconds=options.seconds,
        network=options.network,
        gpus=context.engine.version().gpus if program.image.cuda else None,
        on_line=show_first,
    )


def _find_remedy(start: Start, program: DecidedProgram, log: Log) -> Remedy | None:
    """Return a remedy with packages that were not tried yet; say why no package helps."""
    local = {Path(source.path).parts[0] for source in program.closure.sources}
    local |= {Path(source.path).stem for source in program.closure.sources}
    remedy = find_remedy(start, image_facts(adapt_base(program.base)), local_modules=local)
    if remedy is None:
        return None
    if not remedy.pip and not remedy.apt:
        log(f"No package fixes this failure: {remedy.reason}.")
    new = {*remedy.pip} - {*program.adoption.pip} | {*remedy.apt} - {*program.adoption.apt}
    return remedy if new else None


def _find_build_remedy(error: BuildFailedError, program: DecidedProgram) -> Remedy | None:
    """Return a remedy for a failed build step; None if it is unknown, or was tried already."""
    if error.fault and error.fault.stops_all:
        return None
    output = error.log.read_text(encoding="utf-8", errors="replace")[-_LARGEST_LOG:]
    remedy = find_build_remedy(output, program.adoption.build_apt)
    if remedy and {*remedy.wheels_only} & {*program.adoption.wheels_only}:
        return None
    return remedy


def _apply(remedy: Remedy, program: DecidedProgram) -> DecidedProgram:
    """Add the packages of a remedy; a requirement replaces another one of the same package."""
    adoption = program.adoption
    changed = {_name(text): text for text in remedy.pip}
    kept = [text for text in adoption.pip if _name(text) not in changed]
    update = {
        "pip": (*kept, *changed.values()),
        "apt": tuple(sorted({*adoption.apt, *remedy.apt})),
        "build_apt": tuple(sorted({*adoption.build_apt, *remedy.build_apt})),
        "wheels_only": tuple(sorted({*adoption.wheels_only, *remedy.wheels_only})),
    }
    what = ", ".join((*remedy.pip, *remedy.apt, *remedy.build_apt, *remedy.wheels_only))
    return replace(
        program,
        adoption=adoption.model_copy(update=update),
        decisions=(*program.decisions, Decision("remedy", what, remedy.reason)),
    )


def _name(requirement: str) -> str:
    return str(canonicalize_name(Requirement(requirement).name))


def print_dockerfile(program: DecidedProgram, project: Project, log: Log) -> str:
    """Return a Dockerfile that needs no other file of imgbuild, after the decisions as comments."""
    options, image = BuildOptions(test=False), program.image
    sites = Sites(image.matrix.upstream_urls, project.settings)
    with ExitStack() as stack:
        work = stack.enter_context(work_folder("adopt"))
        context = stack.enter_context(open_context(project, (image,), options, log))
        metadata = stack.enter_context(MetadataReader(project, image.matrix, sites, log, ""))
        resolution = _resolve(program, metadata, work / LOCK)
        program = _with_resolution(program, resolution)
        extension = make_extension(program)
        distributions = list[Source]()
        if resolution.lock:
            found = find_distributions(resolution.lock, (), program.base, metadata, with_uv=True)
            distributions += found
        archive = None
        if extension.downloads_apt:
            base = program.base
            archive = provide_archive_base(base.name, base.system, context, base.engine_platform)
        text = extension_dockerfile(
            extension,
            program.base,
            resolution.lock,
            (),
            image,
            project,
            distributions=distributions,
            archive=archive,
        )
    decided = adoption_text(program.adoption, program.decisions).splitlines()
    first, _, rest = text.partition("\n")  # the line `# syntax=` must come first
    comments = "".join(f"# {line.removeprefix('# ')}\n" for line in decided[2:])
    return f"{first}\n{comments}{rest.rstrip()}"


def program_command(adoption: Adoption) -> tuple[str, ...]:
    """Return the command that starts the program in its container."""
    if adoption.entry.endswith(".ipynb"):
        # Containers of a user who is root run as root.
        where = ("--ip", "0.0.0.0", "--no-browser", "--allow-root")  # noqa: S104 - in a container
        return ("jupyter", "lab", *where)
    # Python takes a name that begins with a hyphen for an option.
    entry = f"./{adoption.entry}" if adoption.entry.startswith("-") else adoption.entry
    what = ("-m", adoption.module) if adoption.module else (entry,)
    return ("python", *what, *adoption.arguments)


def run_command(program: DecidedProgram) -> str:
    """Return the `imgbuild run` command of the program."""
    adoption, closure = program.adoption, program.closure
    words = ["imgbuild", "run", adoption.tag]
    if closure.package_name.isidentifier():
        words += ["--mount", f".:/packages/{closure.package_name}"]
    if adoption.entry.endswith(".ipynb"):
        words += ["--port", "8888"]
    return shlex.join([*words, "--exec", "--", *program_command(adoption)])


def _result_key(program: DecidedProgram) -> str:
    """Return a digest of everything that determines the result."""
    folder, repository = program.repository.folder, program.repository
    texts = {}
    for path in repository.files:
        if path in {FILE, LOCK}:
            continue
        status = (folder / path).lstat()
        texts[path] = [status.st_size, status.st_mtime_ns]
    lock = folder / LOCK
    locked = sha256(lock.read_bytes()) if lock.is_file() else ""
    adoption = program.adoption.model_dump(mode="json")
    return json_sha256([adoption, locked, texts, program.base.id])


def _recall_result(program: DecidedProgram, context: BuildContext) -> Adopted | None:
    """Return the result of the last time if nothing has changed since."""
    kept = read_result(program.repository.folder)
    try:
        stored = context.engine.inspect(program.adoption.tag)
        if kept["key"] != _result_key(program) or not stored or stored.id != kept["image"]:
            return None
        start = Start(**kept["start"])
        missing = tuple((str(name), str(why)) for name, why in kept["missing"])
        return Adopted(program, start, missing=missing, is_unchanged=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep_result(adopted: Adopted, context: BuildContext) -> None:
    program = adopted.program
    stored = context.engine.inspect(program.adoption.tag)
    result = {
        "key": _result_key(program),
        "tag": program.adoption.tag,
        "image": stored.id if stored else "",
        "start": vars(adopted.start),
        "missing": adopted.missing,
    }
    write_text(result_path(program.repository.folder), json.dumps(result))
