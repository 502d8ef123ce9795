"""Add a release of TensorFlow to a checkout: its row, lock, facts, Dockerfile and tables.

All of it is made in a copy of the checkout; the files that differ are written at once, or none.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from imgbuild.audit.audit import OnlineAudit, audit_offline, needs_of, write_evidence
from imgbuild.audit.compare import Need
from imgbuild.audit.package_index import OfferedFile, index_url, read_project
from imgbuild.build.source_metadata import MetadataReader
from imgbuild.catalog.page import PAGES, readme_texts
from imgbuild.dockerfile.lockfile import read_lock
from imgbuild.dockerfile.render import render_all, write_all
from imgbuild.dockerfile.requirements import lock_family, write_locks
from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.files import work_folder, write_texts
from imgbuild.matrix.images import Image, all_images, minor_of
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix, Variant
from imgbuild.matrix.new_row import NewRow
from imgbuild.matrix.rules import numbers
from imgbuild.project import Project
from imgbuild.sites import Sites

Log = Callable[[str], None]
Page = Mapping[str, OfferedFile]


@dataclass(frozen=True)
class NewVersion:
    """What was written, and the images that there are now."""

    changed: list[Path]
    images: tuple[Image, ...]


def add_version(project: Project, row: NewRow, sites: Sites, log: Log) -> NewVersion:
    """Write everything that a new release needs.

    InputError: the index has no such release, no Horovod fits, or it breaks a rule.
    CheckFailedError: no packages satisfy its lock, or its wheel is not what it should be.
    MachineError: the index cannot be reached.
    """
    client, index = sites.client(), index_url(sites)

    @cache
    def page(name: str) -> Page:
        return read_project(client, index, name)

    beside = {"tensorboard": _of_minor("tensorboard", row.version, page("tensorboard"))}
    if row.release.tf_keras:
        beside["tf_keras"] = _of_minor("tf-keras", row.version, page("tf-keras"))
    text = row.text(beside, _distributions(row, page))
    with work_folder("add") as folder:
        copy = _copied(project, folder)
        copy.matrix.write_text(text, encoding="utf-8")
        matrix = load_matrix(copy.matrix)
        with MetadataReader(project, matrix, sites, log) as reader:
            readers = (reader.read, reader.requirements)
            _, unread = write_locks(lock_family(matrix), copy.locks, sites, log, *readers)
        if unread:
            raise MachineError(f"{' '.join(unread)} Nothing was changed.")
        _read_wheels(copy, _images(matrix, row), sites, log)
        matrix = load_matrix(copy.matrix)  # with the facts of its wheels
        rendered = render_all(all_images(matrix), copy.templates, copy.dockerfiles)
        write_all(rendered | readme_texts(copy.root, matrix), copy.dockerfiles)
        changed = write_texts(*_differences(copy, project))
    return NewVersion(changed, _images(matrix, row))


def _images(matrix: Matrix, row: NewRow) -> tuple[Image, ...]:
    its = row.version, row.like.stack
    return tuple(image for image in all_images(matrix) if (image.tensorflow, image.stack) == its)


def _of_minor(project: str, version: str, page: Page) -> str:
    """Return the newest release with TensorFlow's minor version, else the newest before it."""
    limit = numbers(minor_of(version))
    releases = {one for one in _releases(project, page) if numbers(minor_of(one)) <= limit}
    if not releases:
        raise InputError(f"The package index has no {project} {minor_of(version)}.")
    return max(releases, key=numbers)


def _releases(project: str, page: Page) -> Iterator[str]:
    for file in page.values():
        try:
            name, version, *_ = parse_wheel_filename(file.name)
        except ValueError:  # also of a version with thousands of digits
            continue
        if name == canonicalize_name(project) and not version.is_prerelease and not file.yanked:
            yield ".".join(map(str, version.release))


def _distributions(row: NewRow, page: Callable[[str], Page]) -> dict[Variant, str]:
    """Return the name under which the index has each variant's wheel for the row's Python."""
    found: dict[Variant, str] = {}
    for variant, names in row.distributions.items():
        needs = [Need(name, row.version, row.wheel_tag, ()) for name in names]
        offered = (n.distribution for n in needs if any(map(n.fits, page(n.distribution))))
        name = next(offered, None)
        if name is None:
            minor = minor_of(row.version)
            known = {version for one in names for version in _releases(one, page(one))}
            near = sorted((one for one in known if minor_of(one) == minor), key=numbers)
            raise InputError(
                f"The package index has no wheel of TensorFlow {row.version} for {row.wheel_tag} "
                f"on Linux x86-64, as {' or '.join(names)}. It has of {minor}: "
                f"{', '.join(near) or 'nothing'}."
            )
        found[variant] = name
    return found


def _copied(project: Project, folder: Path) -> Project:
    copy = Project(folder / "checkout")
    shutil.copytree(project.root / "images", copy.root / "images")
    for page in (page for page in PAGES if (project.root / page).is_file()):
        (copy.root / page).parent.mkdir(exist_ok=True)
        shutil.copy(project.root / page, copy.root / page)
    return copy


def _read_wheels(copy: Project, images: tuple[Image, ...], sites: Sites, log: Log) -> None:
    """Write what the wheels of the new images are; their own locks must name these wheels."""
    matrix, needs = images[0].matrix, needs_of(images)
    online = OnlineAudit(sites.client(), sites, {}, matrix.evidence.facts, False, log)
    outcome = online.run(needs, ())
    if outcome.unread:
        raise MachineError(f"{' '.join(outcome.unread)} Nothing was changed.")
    facts = {one.facts.sha256: one.facts for one in outcome.artifacts if one.facts}
    locks = {image.lock_name: read_lock(copy.locks / image.lock_name) for image in images}
    found = [*outcome.contradictions, *audit_offline(needs, locks, facts).contradictions]
    if found:
        said = " ".join(dict.fromkeys(f"{one.subject}: {one.evidence}." for one in found))
        raise CheckFailedError(f"{said} Nothing was changed.")
    write_evidence(copy.evidence, facts.values(), needs_of(all_images(matrix)))


def _differences(copy: Project, project: Project) -> tuple[dict[Path, str], list[Path]]:
    """Return the texts that differ from the checkout's, and its files that are gone."""
    made = {path.relative_to(copy.root): path for path in copy.root.rglob("*") if path.is_file()}
    pairs = ((project.root / name, path) for name, path in made.items())
    texts = {
        old: new.read_text(encoding="utf-8")
        for old, new in pairs
        if not old.is_file() or old.read_bytes() != new.read_bytes()
    }
    there = (one for folder in (project.locks, project.dockerfiles) for one in folder.rglob("*"))
    return texts, [
        one for one in there if one.is_file() and one.relative_to(project.root) not in made
    ]
