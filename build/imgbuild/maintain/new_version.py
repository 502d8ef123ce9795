"""Add a TensorFlow release to a checkout: its row, lock, facts, Dockerfile and tables.

All files are created in a copy of the checkout. The changed files are then written together, or
none of them.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from imgbuild.build.source_metadata import MetadataReader
from imgbuild.catalog.page import PAGES, readme_texts
from imgbuild.core.errors import CheckFailedError, InputError, MachineError
from imgbuild.core.files import work_folder, write_texts
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import render_all, write_all
from imgbuild.locks.lockfile import read_lock
from imgbuild.locks.requirements import lock_family, write_locks
from imgbuild.maintain.audit import audit_offline, audit_online, list_artifacts, write_evidence
from imgbuild.maintain.compare import Artifact
from imgbuild.maintain.package_index import OfferedFile, find_index_url, read_project_page
from imgbuild.matrix.images import Image, all_images, minor_of, with_other_architectures
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import DistributionKey, Matrix
from imgbuild.matrix.new_row import NewRow
from imgbuild.matrix.rules import parse_numbers
from imgbuild.net.sites import Sites

Log = Callable[[str], None]
Page = Mapping[str, OfferedFile]


def add_version(
    project: Project, row: NewRow, sites: Sites, log: Log
) -> tuple[list[Path], tuple[Image, ...]]:
    """Write all files for a new release; return the changed paths and the new images.

    InputError: the index does not have the release, no Horovod fits, or it violates a rule.
    CheckFailedError: no packages satisfy its requirements, or its wheel contradicts the matrix.
    MachineError: the index cannot be reached.
    """
    client, index = sites.client(), find_index_url(sites)

    @cache
    def page(name: str) -> Page:
        return read_project_page(client, index, name)

    tensorboard = _newest_release("tensorboard", row.version, page("tensorboard"))
    beside = {"tensorboard": tensorboard}
    if row.release.tf_keras:
        beside["tf_keras"] = _newest_release("tf-keras", row.version, page("tf-keras"))
    distributions = find_distributions(row, page, log)
    text = row.text(beside, distributions)
    with work_folder("add") as folder:
        copy = _copy_project(project, folder)
        copy.matrix.write_text(text, encoding="utf-8")
        matrix = load_matrix(copy.matrix)
        with MetadataReader(project, matrix, sites, log) as reader:
            _, unread = write_locks(
                lock_family(matrix),
                copy.locks,
                sites,
                log,
                read_metadata=reader.read,
                read_requirements=reader.requirements,
            )
        if unread:
            raise MachineError(f"{' '.join(unread)} Nothing was changed.")
        images = _select_images(matrix, row)
        _read_wheels(copy, with_other_architectures(images), sites, log)
        matrix = load_matrix(copy.matrix)  # with the facts of its wheels
        rendered = render_all(all_images(matrix), copy.templates, copy.dockerfiles)
        rendered |= readme_texts(copy.root, matrix)
        write_all(rendered, copy.dockerfiles)
        texts, gone = _find_differences(copy, project)
        changed = write_texts(texts, gone)
    return changed, _select_images(matrix, row)


def _select_images(matrix: Matrix, row: NewRow) -> tuple[Image, ...]:
    images = (image for image in all_images(matrix) if image.tensorflow == row.version)
    return tuple(image for image in images if image.stack == row.like.stack)


def _newest_release(project: str, version: str, page: Page) -> str:
    """Return the newest release of the same minor version, else the newest older release."""
    limit = parse_numbers(minor_of(version))
    releases = _list_releases(project, page)
    older = [release for release in releases if parse_numbers(minor_of(release)) <= limit]
    if not older:
        raise InputError(f"The package index has no {project} {minor_of(version)}.")
    return max(older, key=parse_numbers)


def _list_releases(project: str, page: Page) -> Iterator[str]:
    for file in page.values():
        try:
            name, version, *_ = parse_wheel_filename(file.name)
        except ValueError:  # an invalid version, or one with thousands of digits
            continue
        is_final = not version.is_prerelease and not file.yanked
        if is_final and name == canonicalize_name(project):
            yield ".".join(map(str, version.release))


def find_distributions(
    row: NewRow, page: Callable[[str], Page], log: Log
) -> dict[DistributionKey, str]:
    """Return the index's package name of each variant's wheel for the row's Python.

    A release without a wheel for arm64 gets no image for arm64.
    """
    distributions: dict[DistributionKey, str] = {}
    for variant, names in row.distributions.items():
        for name in names:
            wheel = Artifact(name, row.version, row.wheel_tag, images=())
            if any(map(wheel.fits, page(name))):
                distributions[variant] = name
                break
        else:
            raise _no_wheel(row, names, page)
    for name in row.names_for_arm64:
        wheel = Artifact(name, row.version, row.wheel_tag, images=(), architecture="arm64")
        if any(map(wheel.fits, page(name))):
            distributions["arm64"] = name
            break
    else:
        if row.names_for_arm64:
            log(f"{' and '.join(row.names_for_arm64)} {row.version}: no wheel for arm64")
    return distributions


def _no_wheel(row: NewRow, names: Iterable[str], page: Callable[[str], Page]) -> InputError:
    """Return the error for a missing wheel; it lists the releases of the same minor version."""
    minor = minor_of(row.version)
    known = set[str]()
    for name in names:
        known.update(_list_releases(name, page(name)))
    same_minor = [release for release in known if minor_of(release) == minor]
    same_minor.sort(key=parse_numbers)
    nearest = f"There is no {minor} release."
    if same_minor:
        nearest = f"Available {minor} releases: {', '.join(same_minor)}."
    return InputError(
        f"The package index has no wheel of TensorFlow {row.version} for {row.wheel_tag} "
        f"on Linux x86-64, as {' or '.join(names)}. {nearest}"
    )


def _copy_project(project: Project, folder: Path) -> Project:
    copy = Project(folder / "checkout")
    shutil.copytree(project.root / "images", copy.root / "images")
    for page in PAGES:
        source, target = project.root / page, copy.root / page
        if source.is_file():
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)
    return copy


def _read_wheels(copy: Project, images: tuple[Image, ...], sites: Sites, log: Log) -> None:
    """Write the facts of the new images' wheels; the locks must contain these wheels."""
    matrix, artifacts = images[0].matrix, list_artifacts(images)
    result = audit_online(
        artifacts, inputs=(), locks={}, sites=sites, log=log, known=matrix.evidence.facts
    )
    if result.unread:
        raise MachineError(f"{' '.join(result.unread)} Nothing was changed.")
    facts = {facts.sha256: facts for facts in result.facts}
    locks = {}
    for image in images:
        locks[image.lock_name] = read_lock(copy.locks / image.lock_name)
    compared = audit_offline(artifacts, locks, facts)
    contradictions = [*result.contradictions, *compared.contradictions]
    if contradictions:
        sentences = [f"{item.subject}: {item.evidence}." for item in contradictions]
        text = " ".join(dict.fromkeys(sentences))
        raise CheckFailedError(f"{text} Nothing was changed.")
    needed = list_artifacts(with_other_architectures(all_images(matrix)))
    write_evidence(copy.evidence, result.facts, needed)


def _find_differences(copy: Project, project: Project) -> tuple[dict[Path, str], list[Path]]:
    """Return the texts that differ from the checkout's, and the files to delete."""
    texts = {}
    for new in copy.root.rglob("*"):
        old = project.root / new.relative_to(copy.root)
        if not new.is_file():
            continue
        is_same = old.is_file() and old.read_bytes() == new.read_bytes()
        if not is_same:
            texts[old] = new.read_text(encoding="utf-8")
    gone = []
    for path in (*project.locks.rglob("*"), *project.dockerfiles.rglob("*")):
        copied = copy.root / path.relative_to(project.root)
        if path.is_file() and not copied.is_file():
            gone.append(path)
    return texts, gone
