"""Build an extension, run the base's suites in it, and tag it."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from imgbuild.build.context import BuildContext, image_locks
from imgbuild.build.display import BuildDisplay
from imgbuild.build.gate import image_size, suite_target
from imgbuild.build.image_build import temporary_name
from imgbuild.build.prepare import provide_archive_base
from imgbuild.core.errors import CheckFailedError, MachineError
from imgbuild.core.files import sha256, work_folder
from imgbuild.core.parallel import in_parallel
from imgbuild.core.project import Project
from imgbuild.core.sources import Source
from imgbuild.dockerfile.labels import (
    ADDED,
    ADDED_APT,
    ADDED_LOCK,
    BASE_DIGEST,
    BASE_NAME,
    EXTENDS,
    REPLACED,
    TESTED,
)
from imgbuild.dockerfile.render import template_environment
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.build import BuildTarget, build_image
from imgbuild.engine.failure import BuildFailedError
from imgbuild.engine.types import StoredImage
from imgbuild.extend.base_image import LOCAL, BaseImage, local_name
from imgbuild.extend.build_files import copy_build_files
from imgbuild.extend.distributions import add_lines
from imgbuild.extend.extension import Extension, TestSet
from imgbuild.inputs.base import Base
from imgbuild.inputs.oci_layout import unpack_archive
from imgbuild.locks.lockfile import Lock
from imgbuild.matrix.images import Image, minor_of
from imgbuild.matrix.selection import build_hint
from imgbuild.net.repository import split_reference
from imgbuild.net.signing import read_trust
from imgbuild.suites.catalog import read_suites
from imgbuild.suites.container import TestTarget, remove_leftovers
from imgbuild.suites.results import Report
from imgbuild.suites.runner import folder_name
from imgbuild.suites.session import report_on

HERE = Path(__file__).parent
#: The stage that is tested, and the stage that only sets the user.
_TESTED, _FINAL = "extended", "final"
#: Prefix of the error message of same_paths.py.
REFUSED = "Not installed: "
#: The suites that run without `--test all`; they take only seconds.
SHORT = ("pins", "contents", "libraries", "imports")


def extension_dockerfile(  # noqa: PLR0913, PLR0917 - the parts of an extension
    extension: Extension,
    base: BaseImage,
    lock: Lock | None,
    wheels: Sequence[str],
    image: Image,
    project: Project,
    *,
    distributions: Sequence[Source] = (),
    archive: Base | None = None,
) -> str:
    """Return the Dockerfile of an extension; it needs no other files of imgbuild.

    ``image`` can be any image in the matrix, because only its date is used. ``wheels`` are paths in
    the build context. ``distributions`` are the files of the lock's packages, which the Dockerfile
    downloads. ``archive`` is the system's base image, in which system packages are downloaded.
    """
    # `docker build` runs no suites, so the default is "none". `imgbuild extend` overrides it.
    labels = {BASE_NAME: base.reference, EXTENDS: base.name, TESTED: "none"}
    paths = dict[str, Path]()
    if extension.downloads_apt:
        paths["apt-install"] = project.files / "apt" / "install"
        for name in ("apt-download", "apt-install-files"):
            paths[name] = HERE / f"{name}.sh"
    if extension.apt:
        labels[ADDED_APT] = " ".join(extension.apt)
    replaced = replaced_packages(lock, base)
    packages = ""
    if lock and lock.entries:
        packages = "".join(f"{entry}\n" for entry in lock.entries.values())
        paths["install"] = HERE / "install.sh"
        paths["same-paths"] = HERE / "same_paths.py"
        minor = minor_of(base.python)
        build_lock = project.locks / f"build-py{minor}.txt"
        if build_lock.exists():
            paths["build.txt"] = build_lock
        added = {**base.added, **lock.versions}
        labels[ADDED] = _pins(added)
        if replaced:
            paths["remove"] = HERE / "remove.sh"
            versions = {name: base.packages[name] for name in replaced}
            labels[REPLACED] = _pins(versions)
    files = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    if packages:
        files["packages.txt"] = packages
        labels[ADDED_LOCK] = f"sha256:{sha256(packages.encode())}"
    environment = template_environment(HERE)
    environment.filters["quoted"] = _quote
    environment.filters["to_json"] = json.dumps
    values: dict[str, Any] = {
        "extension": extension,
        "base": base,
        "files": files,
        "labels": labels,
        "source": base.local_name,
        "wheels": wheels,
        "replaced": replaced,
        "added": add_lines(distributions),
        "epoch": epoch_seconds(image),
    }
    # The user must set these names with `docker tag` before `docker build`.
    names = {base.id or base.reference: base.local_name}
    if extension.downloads_apt and archive:
        name = archive.reference  # with the digest, so `docker build` can pull it
        if archive.layout:
            name = local_name(name)
        values["archive"] = name
        names[archive.reference] = name
    tags = [(reference, name) for reference, name in names.items() if name.startswith(LOCAL)]
    values["tags"] = tags
    template = environment.get_template("Dockerfile.j2")
    text = template.render(values)
    return text.rstrip() + "\n"


def _pins(versions: Mapping[str, str]) -> str:
    pins = [f"{name}=={version}" for name, version in versions.items()]
    return " ".join(pins)


def replaced_packages(lock: Lock | None, base: BaseImage) -> list[str]:
    """Return the base's packages that the lock replaces with other versions."""
    if not lock:
        return []
    names = lock.versions.keys() & base.packages.keys()
    return sorted(names)


def suites_to_run(extension: Extension, lock: Lock | None, base: BaseImage) -> TestSet:
    """Return the set of suites that must pass before the image is tagged.

    A base outside the matrix has no suites. By default, all suites run if this extension or its
    base replaces a package of the matrix's image; otherwise, the short set runs.
    """
    if not base.image:
        return "none"
    if extension.test:
        return extension.test
    replaced = base.changed or replaced_packages(lock, base)
    return "all" if replaced else "short"


def _quote(value: str) -> str:
    """Quote a value for ENV or LABEL, so that no variable is expanded.

    Source: Dockerfile reference, "Environment replacement".
    """
    escaped = re.sub(r'(["\\$])', r"\\\1", value)
    return f'"{escaped}"'


def build_extension(  # noqa: PLR0913 - the extension and its build
    extension: Extension,
    base: BaseImage,
    lock: Lock | None,
    wheels: Sequence[str],
    context: BuildContext,
    *,
    distributions: Path | None,
    folder: Path,
    requested: Iterable[str] = (),
    use: Callable[[str], None] = lambda _: None,
) -> tuple[int, Report | None]:
    """Build the extension, test it unless the options say otherwise, and tag it if it passed.

    Return the size of the added layers in bytes, and the report of the suites if any ran. If the
    build fails or is interrupted, no image is left.

    ``distributions`` is a folder with the files of the lock's packages. Paths to copy are relative
    to ``folder``. ``requested`` are the names of the requested packages. ``use`` is called with the
    id of the image before its tests. If it raises an error, the image is removed without a tag.

    InputError: the base is not in the engine, or a file to copy cannot be read.
    CheckFailedError: a step or a suite failed.
    """
    tag, engine = extension.tag or "", context.engine
    name = folder_name(tag)
    stored = engine.need(base.id or base.reference, build_hint(base.image))
    archive = None
    if extension.downloads_apt:
        archive = provide_archive_base(base.name, base.system, context, base.engine_platform)
    tests = suites_to_run(extension, lock, base)
    family = base.image.name if base.image else ""
    made = set[str]()
    with (
        image_locks([name], engine.host, context.state / "locks"),
        work_folder("dockerfile") as work,
        BuildDisplay([tag]) as display,
        temporary_name(stored.id, context) as base_name,
    ):
        _copy_sources(extension, wheels, folder, work / "files")
        contexts = {"base": _base_context(base, stored, base_name, work, context)}
        if distributions:
            contexts["distributions"] = str(distributions)
        if archive:
            in_engine = context.builders[0].builder is None
            contexts["archive"] = archive.context(in_engine=in_engine)
        labels = {BASE_DIGEST: _base_digest(base, stored), TESTED: tests}
        target = _extension_build(name, work, extension, base, contexts, labels, context)
        image, project = context.images[0], context.project
        text = extension_dockerfile(extension, base, lock, wheels, image, project, archive=archive)
        target.dockerfile.write_text(text, encoding="utf-8")
        show = partial(display.show_step, tag)

        def build(stage: str) -> str:
            try:
                image_id, _ = build_image(
                    context.builders[0],
                    replace(target, target=stage),
                    log=context.log_path(name),
                    show=show,
                )
            except BuildFailedError as error:
                raise _conflict_error(error) or error from None
            made.add(image_id)
            return image_id

        try:
            tested = image_id = build(_TESTED)
            use(tested)
            report, expected = None, None
            if tests != "none" and base.image:
                extended = extension_target(tag, tested, base, lock, requested, context)
                report = _run_suites(extended, base.image, display, context, every=tests == "all")
                expected = extended.expected
            if extension.user or base.user:
                image_id = build(_FINAL)
            size = image_size(engine.history(image_id)) - image_size(engine.history(stored.id))
            before = engine.inspect(tag)
            unknown = _is_of_unknown_origin(stored.id, context)
            context.store.record_extension(image_id, family, report, expected, cached_base=unknown)
            engine.tag(image_id, tag)
            if before and EXTENDS in before.labels:
                made.add(before.id)
        finally:
            for made_id in made:
                engine.discard(made_id)
    return size, report


def _copy_sources(extension: Extension, wheels: Sequence[str], folder: Path, target: Path) -> None:
    """Copy the files and wheels that the Dockerfile uses into a new folder."""
    sources = [pair.partition(":")[0] for pair in extension.copied]
    target.mkdir()
    copy_build_files([*sources, *wheels], folder, target)


def _extension_build(  # noqa: PLR0913, PLR0917 - the parts of an extension
    name: str,
    work: Path,
    extension: Extension,
    base: BaseImage,
    contexts: Mapping[str, str],
    labels: Mapping[str, str],
    context: BuildContext,
) -> BuildTarget:
    """Return the build target of an extension; the folder ``work`` contains its Dockerfile."""
    inputs = context.inputs
    if uv := inputs.uv_for(base.engine_platform):
        contexts = {**contexts, "uv": str(uv)}
    uncached: tuple[str, ...] = ()
    if inputs.snapshots:  # the date is in a secret, and BuildKit's cache ignores secrets
        uncached = _apt_stages(extension)
    return BuildTarget(
        name,
        work / "files",
        work / "Dockerfile",
        contexts=contexts,
        labels=labels,
        uncached=uncached,
        secrets=inputs.secrets,
        platform=base.engine_platform,
    )


def _base_digest(base: BaseImage, stored: StoredImage) -> str:
    """Return the digest of the base in its registry, or its id if it has no digest."""
    digests = {}
    for reference in stored.digests:
        repository, digest = reference.split("@")
        digests[repository] = digest
    repository, *_ = split_reference(base.reference)
    return digests.get(repository, stored.id)


def _is_of_unknown_origin(base_id: str, context: BuildContext) -> bool:
    """Return whether the origin of a base is unknown, or, for an extension, that of its base."""
    if before := context.store.extension(base_id):
        return before.cached_base
    if context.store.was_made_here(base_id):
        return False
    # With `verify` in the settings, `extend` refuses other bases without a trusted signature.
    return read_trust(context.settings) is None


def _apt_stages(extension: Extension) -> tuple[str, ...]:
    """Return the stages that download system packages."""
    stages = {"archives": extension.apt, "build-archives": extension.build_apt}
    return tuple(name for name, packages in stages.items() if packages)


def _conflict_error(error: BuildFailedError) -> CheckFailedError | None:
    """Return the error of same_paths.py, or None if the build failed for another reason."""
    refusals = [line for line in error.tail if line.startswith(REFUSED)]
    return CheckFailedError(refusals[-1]) if refusals else None


def _base_context(
    base: BaseImage, stored: StoredImage, name: str, folder: Path, context: BuildContext
) -> str:
    """Return the base as a named build context.

    The engine's builder uses its ``name``. Other builders get a copy in ``folder``.
    """
    if context.builders[0].builder is None:
        return f"docker-image://{name}"
    archive, layout = folder / "base.tar", folder / "base"
    with archive.open("wb") as file:
        file.writelines(context.engine.save(stored.id))
    unpack_archive(archive, layout)
    archive.unlink()
    if not (layout / "index.json").is_file():  # Docker before 25
        raise MachineError(
            f"The engine is too old to export {base.reference} for another builder. Extend it "
            "without --builder (or engine.builder in the settings), or upgrade the engine."
        )
    return f"oci-layout://{layout}"


def extension_target(  # noqa: PLR0913, PLR0917 - the extension and its parts
    tag: str,
    image_id: str,
    base: BaseImage,
    lock: Lock | None,
    requested: Iterable[str],
    context: BuildContext,
) -> TestTarget:
    """Return the test target of an extension, which expects the base's facts and more packages.

    ``requested`` are the names of the requested packages. The base must be in the matrix.
    """
    if not base.image:
        raise ValueError(f"{base.name} has no suites")
    added = lock.versions if lock else {}
    versions = {name: added[name] for name in requested if name in added}
    target = suite_target(base.image, image_id, context, tag)
    expected = {**target.expected}
    expected["packages"] = {**base.packages, **added}
    expected["requested"] = versions
    return replace(target, name=tag, expected=expected)


def _run_suites(
    target: TestTarget,
    image: Image,
    display: BuildDisplay,
    context: BuildContext,
    *,
    every: bool,
) -> Report:
    """Run the base's suites in the extension; return their report.

    Without ``every``, only the short set runs.

    CheckFailedError: a suite failed.
    """
    tag = target.name
    suites: tuple[str, ...] = ()
    if not every:
        suites = short_set(context.project.suites, target.expected)
    remove_leftovers([tag], context.engine)
    session = replace(context.test_session, suites=suites, listener=display.show_state)
    # Run the suites in another thread, so that an interrupt reaches this one and stops them.
    tested = partial(report_on, session=session)
    (report,) = in_parallel(tested, [target], 1, stop=session.stop.set, grace=None)
    if not report.ok:
        problems = "; ".join(report.problems)
        folder = context.reports / folder_name(tag)
        raise CheckFailedError(
            f"{tag} was not tagged, because suites of {image.name} did not pass in it: "
            f"{problems}. Report: {folder}/report.json. --no-test tags it anyway."
        )
    return report


def short_set(folder: Path, expected: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the short suites that apply to the image.

    If none of the project's suites is one of them, the result is empty, which means all suites.
    """
    suites = [suite for suite in read_suites(folder) if suite.name in SHORT]
    return tuple(suite.name for suite in suites if suite.is_for(expected))


def requested_names(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the names of packages in requirements that `judge_lines` returned."""
    names = list[str]()
    for line in lines:
        text = line.partition(" --hash")[0]
        if text.startswith("-c "):
            continue
        if text.endswith(".whl"):
            file_name = Path(text).name
            name, *_ = parse_wheel_filename(file_name)
        else:
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
        names.append(name)
    return tuple(dict.fromkeys(names))
