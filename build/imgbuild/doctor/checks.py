"""Run all checks at once, and decide where builds on this machine take their inputs from."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from imgbuild.doctor.engine_checks import OWN_HOST, EngineState, check_engine, read_engine
from imgbuild.doctor.input_checks import (
    InterpreterState,
    check_bootstrap,
    check_ca,
    check_index,
    check_interpreter,
    check_registry,
    read_ca_state,
    read_interpreter,
)
from imgbuild.doctor.show import Finding, Status, install_command
from imgbuild.files import write_text
from imgbuild.matrix.images import all_images
from imgbuild.matrix.model import Matrix
from imgbuild.parallel import background
from imgbuild.process import find_program
from imgbuild.project import Project, cache_dir
from imgbuild.settings import (
    BootstrapBase,
    Interpreter,
    PrefixInterpreter,
    RegistryBase,
    Settings,
    Sites,
    load_settings,
)

GB = 10**9
#: A TensorFlow image is about 1 GB, its layers once more while it is built.
LOW, TOO_LOW = 10 * GB, 3 * GB
HEADER = """\
# What this machine gives to builds. Every imgbuild command reads it; it is never committed.
# Written by `imgbuild doctor --write`, which keeps what you set here while it is valid.
# All keys: docs/reference.md.
"""


@dataclass(frozen=True)
class Diagnosis:
    """The findings, and the settings with every input decided, which ``--write`` writes."""

    findings: tuple[Finding, ...]
    choice: Settings

    @property
    def missing(self) -> tuple[Finding, ...]:
        """What keeps a build from being done."""
        return tuple(row for row in self.findings if row.status is Status.MISSING)


def diagnose(
    project: Project, matrix: Matrix, settings: Settings, *, writing: bool = False
) -> Diagnosis:
    """Check everything. Changes nothing; takes seconds, whatever does not answer.

    With ``writing`` the choice will be recorded, so that what it decides counts already.
    """
    ca = read_ca_state()
    bundle = ca.choose(settings.ca_bundle)
    images = all_images(matrix)
    systems = {image.os_name: matrix.operating_systems[image.os_name] for image in images}
    pythons = dict.fromkeys(image.version_of("python") for image in images)
    bases = {name: settings.base_for(name, one.image) for name, one in systems.items()}

    engine_answer = background(partial(read_engine, settings.engine))
    index_answer = background(partial(check_index, bundle))
    bootstraps = [
        background(partial(check_bootstrap, name, systems[name]))
        for name, base in bases.items()
        if isinstance(base, BootstrapBase)
    ]
    states = _interpreters(matrix, settings, bundle)
    engine = engine_answer.result()

    made = {name: base for name, base in bases.items() if systems[name].image is None}
    update: dict[str, object] = {
        "base": {**settings.base, **made},
        "cpython": _interpreters_chosen(settings, states),
        "ca_bundle": bundle,
    }
    if engine.unrecorded:
        update["engine"] = settings.engine.model_copy(update={"host": OWN_HOST})
    choice = settings.model_copy(update=update)
    valid = choice if writing else settings
    buildx = engine.buildx.path if engine.buildx else None
    findings = (
        *check_engine(engine, project, writing=writing),
        *_disks(engine),
        *(answer.result() for answer in bootstraps),
        *(
            check_registry(name, base.image, buildx, engine.host)
            for name, base in bases.items()
            if isinstance(base, RegistryBase)
        ),
        *(_interpreter_row(version, states, choice, valid) for version in pythons),
        index_answer.result(),
        check_ca(ca, valid.ca_bundle),
        *check_programs(),
    )
    return Diagnosis(findings, choice)


def _interpreters(
    matrix: Matrix, settings: Settings, bundle: str | None
) -> Mapping[str, InterpreterState]:
    """Return where each CPython that is compiled from a source could come from."""
    sites = Sites(matrix.upstream_urls, settings.model_copy(update={"ca_bundle": bundle}))
    answers = {}
    for version in dict.fromkeys(image.version_of("python") for image in all_images(matrix)):
        python, current = matrix.python[version], settings.cpython.get(version)
        named = current.path if isinstance(current, PrefixInterpreter) else None
        if python.origin == "source":
            url = matrix.sources[python.source].url
            answers[version] = background(partial(read_interpreter, version, url, named, sites))
    return {version: answer.result() for version, answer in answers.items()}


def _interpreters_chosen(
    settings: Settings, states: Mapping[str, InterpreterState]
) -> Mapping[str, Interpreter]:
    """Return where each CPython is taken from; what the user set stays while valid."""
    ways = {one: state.choose(settings.cpython.get(one)) for one, state in states.items()}
    others = {one: way for one, way in settings.cpython.items() if one not in states}
    return {**others, **{one: way for one, way in ways.items() if way}}


def _interpreter_row(
    version: str, states: Mapping[str, InterpreterState], choice: Settings, valid: Settings
) -> Finding:
    if version not in states:
        detail = "from conda packages, each by its own address"
        return Finding(Status.SKIPPED, f"CPython {version}", detail)
    way = choice.cpython.get(version)
    recorded = valid.interpreter_for(version) == way
    return check_interpreter(states[version], way, recorded=recorded)


def check_programs() -> list[Finding]:
    """Return whether suites can call ``docker``, and images can be labelled by ``git``."""
    docker, git = find_program("docker"), find_program("git")
    client = Finding(Status.FINE, "docker client", f"{docker}, for the suites")
    if not docker:
        detail = "missing; images can be built, but their suites cannot run (build --no-test)"
        fix = "put a docker client on PATH (docker-cli in newer Debian, docker.io in Ubuntu)"
        client = Finding(Status.WARNING, "docker client", detail, fix)
    detail = "images are labelled with the commit they were built from"
    label = Finding(Status.FINE, "git", detail)
    if not git:
        detail = "missing; images get no revision label, and --changed-since does not work"
        label = Finding(Status.WARNING, "git", detail, install_command("git"))
    return [client, label]


def _disks(engine: EngineState) -> Iterator[Finding]:
    if engine.data_root:
        prune = "docker builder prune; docker image prune"
        yield check_disk("disk, engine", engine.data_root, prune)
    cache = cache_dir()
    yield check_disk("disk, cache", cache, f"rm -r {cache}, or set XDG_CACHE_HOME")


def check_disk(what: str, path: Path, fix: str) -> Finding:
    """Return whether the file system where ``path`` is, or will be, has space for images."""
    try:
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Finding(Status.SKIPPED, what, f"{path}: {os.strerror(error.errno or 0)}")
    detail = f"{free / GB:.0f} GB free in {path}"
    if free < TOO_LOW:
        return Finding(Status.MISSING, what, f"{detail}; a build needs 3 GB", fix)
    if free < LOW:
        return Finding(Status.WARNING, what, f"{detail}; an image takes about 1 GB", fix)
    return Finding(Status.FINE, what, detail)


def write_settings(settings: Settings, path: Path) -> bool:
    """Write ``settings`` to ``path``; return whether the file changed.

    A file that already says the same stays as it is, comments and all.

    Raises:
        MachineError: the file cannot be written.

    """
    import yaml  # noqa: PLC0415 - only this command writes YAML

    if path.exists() and load_settings(path) == settings:
        return False
    values = settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    filled = {key: value for key, value in values.items() if value}
    write_text(path, HEADER + (yaml.safe_dump(filled, sort_keys=False) if filled else "{}\n"))
    return True
