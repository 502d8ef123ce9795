"""Compare the input digests of images with those at another revision.

Both sides get what this machine has: the same settings, the same base images. The recipe stands for
a base image that is not bootstrapped yet: that is enough to compare two revisions, but a build will
find another digest (`CheckoutDigests.exact`).

The other revision is read from git without a checkout: neither the work tree nor the index nor HEAD
is touched. The files that decide input digests (`PARTS`) are written into a temporary folder.
"""

import os
import re
import tarfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from imgbuild.dockerfile.labels import INPUT_PARTS, pin_labels
from imgbuild.dockerfile.render import dockerfile_path
from imgbuild.dockerfile.stages import Dockerfile
from imgbuild.errors import InputError, MachineError
from imgbuild.files import work_folder
from imgbuild.inputs.build_inputs import (
    BaseInput,
    BuildInputs,
    base_recipe,
    prepare_inputs,
)
from imgbuild.matrix.images import Image, whole_family
from imgbuild.matrix.model import Matrix
from imgbuild.plan.changes import changes_since, described, parts_label
from imgbuild.plan.digest import SHORT, InputDigest, InputReader, input_digest
from imgbuild.process import NOT_FOUND, TIMED_OUT, Finished, run
from imgbuild.project import Project
from imgbuild.settings import Settings

_UV = re.compile(r"uv\s*==\s*([0-9][0-9A-Za-z.]*)")
#: What GitHub and GitLab call the revision before a branch's first: only zeros.
_NO_REVISION = {"0"}
_SHA = 40
#: What decides the input digests of a checkout; ``pyproject.toml`` pins uv.
PARTS = ("matrix.yaml", "images", "pyproject.toml")
_SECONDS = 120
#: No refreshing of the index, no question to a person, and English.
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


@dataclass(frozen=True)
class CheckoutDigests:
    """One checkout's images by name, their digests, and why some have none.

    ``inexact`` are the images whose base image is not made yet.
    """

    images: Mapping[str, Image]
    digests: Mapping[str, InputDigest]
    unreadable: Mapping[str, InputError]
    inexact: frozenset[str]

    def exact(self, name: str) -> str | None:
        """Return the digest that a build here will find; None where its base is to be made."""
        return None if name in self.inexact else self.digests[name].total


class RevisionReader(InputReader):
    """Reads a revision, whose committed files are what was built from it.

    They are not rendered again: imgbuild's code may be another by now, and its rendering with it.
    """

    def dockerfile(self, image: Image) -> Dockerfile:
        """Return what is in the image's committed Dockerfile.

        InputError: there is none.
        """
        path = dockerfile_path(image, self.project.dockerfiles)
        try:
            return Dockerfile(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeError):
            raise InputError("it had no Dockerfile that can be read") from None

    def require_locks(self, image: Image) -> None:
        """Take the locks as they are: whatever they hold is part of the digest."""


def this_checkout(
    project: Project, images: tuple[Image, ...], inputs: BuildInputs
) -> CheckoutDigests:
    """Return the digests of the checkout as it is.

    InputError: a Dockerfile or lock is missing or not the current one.
    """
    found = _digests(images, inputs, InputReader(project))
    for error in found.unreadable.values():
        raise error
    return found


def other_checkout(
    project: Project, images: tuple[Image, ...], settings: Settings, here: Project
) -> CheckoutDigests:
    """Return the digests of a revision; faults of an image there are returned, not raised.

    InputError: none of them can be read.
    """
    known = known_to(images[0].matrix, settings)
    inputs = prepare_inputs(images, known, project, lambda _: None, make=False)
    uv = _pinned_uv(project)
    if uv and uv != _pinned_uv(here):
        inputs = replace(inputs, uv_version=uv)
    return _digests(images, inputs, RevisionReader(project))


def _digests(
    images: tuple[Image, ...], inputs: BuildInputs, reader: InputReader
) -> CheckoutDigests:
    """Return the digests with recipes in place of base images that are not made yet."""
    recipes = {i.os_name: f"recipe {base_recipe(i).digest[:SHORT]}" for i in images}
    missing = {name for name, base in inputs.bases.items() if base.digest is None}
    made_up = {name: BaseInput("", recipes[name], inputs.bases[name].origin) for name in missing}
    compared = replace(inputs, bases={**inputs.bases, **made_up})
    digests, unreadable = {}, {}
    for image in images:
        try:
            digests[image.name] = input_digest(image, compared, reader)
        except InputError as error:
            unreadable[image.name] = error
    inexact = frozenset(image.name for image in images if image.os_name in missing)
    return CheckoutDigests({i.name: i for i in images}, digests, unreadable, inexact)


def known_to(matrix: Matrix, settings: Settings) -> Settings:
    """Return the settings without what an older matrix does not know, which would be an error."""
    named: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
        "base": (settings.base, matrix.operating_systems),
        "cpython": (settings.cpython, matrix.python),
        "mirrors": (settings.mirrors, matrix.upstreams),
    }
    kept = {
        section: {name: value for name, value in values.items() if name in known}
        for section, (values, known) in named.items()
    }
    return settings.model_copy(update=kept)


def _pinned_uv(project: Project) -> str | None:
    """Return the uv that an imgbuild of this checkout installs with; None where nothing says."""
    try:
        text = (project.root / "pyproject.toml").read_text(encoding="utf-8")
        needs = tomllib.loads(text)["project"]["dependencies"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found = (_UV.match(str(need)) for need in needs)
    return next((match[1] for match in found if match), None)


def changed_since(
    reference: str,
    now: CheckoutDigests,
    project: Project,
    settings: Settings,
    log: Callable[[str], None],
) -> dict[str, str]:
    """Return, by name, why images of ``now`` differ from those at ``reference``.

    ``log`` gets the images that are gone, and why every image counts as changed: where the revision
    has a matrix that this imgbuild cannot read.

    InputError: there is no such revision here.
    MachineError: there is no git.
    """
    from imgbuild.matrix.load import load_matrix  # noqa: PLC0415 - it takes its time

    every = f"--changed-since {reference}: every image counts as changed"
    if len(reference) >= _SHA and {*reference} == _NO_REVISION:
        reason = "there is no revision before this one"
        log(f"{every}: {reason}")
        return dict.fromkeys(now.images, reason)
    with revision(project, reference) as then:
        try:
            old_family = whole_family(load_matrix(then.matrix))
            before = other_checkout(then, old_family, settings, project)
        except InputError as error:
            first = str(error).replace(f"{then.root}/", "").splitlines()[0]
            log(f"{every}: this imgbuild cannot read what is there: {first}")
            return dict.fromkeys(now.images, f"nothing can be compared with {reference}")
    family = {image.name for image in whole_family(next(iter(now.images.values())).matrix)}
    for name in before.images:
        if name not in family:
            log(f"{name} is gone from the matrix")
    reasons = {name: _difference(name, now, before, reference) for name in now.images}
    return {name: reason for name, reason in reasons.items() if reason}


def _difference(name: str, now: CheckoutDigests, before: CheckoutDigests, reference: str) -> str:
    """Return why an image differs; nothing if it does not."""
    if name not in before.images:
        return f"new: not in {reference}"
    if name in before.unreadable:
        return f"it cannot be compared with {reference}: {before.unreadable[name]}"
    if now.digests[name].total == before.digests[name].total:
        return ""
    labels = {**pin_labels(before.images[name]), INPUT_PARTS: parts_label(before.digests[name])}
    # The inputs that differ, as ``build --plan`` prints them.
    found = described(changes_since(labels, now.images[name], now.digests[name]))
    return f"changed: {found or 'an input that cannot be named'}"


@contextmanager
def revision(project: Project, reference: str) -> Iterator[Project]:
    """Give the checkout as it was at ``reference``, in a folder that lives as long as the block.

    InputError: there is no such revision here, or the folder is not a Git checkout.
    MachineError: there is no git.
    """
    if project.is_installed:
        raise InputError(
            f"--changed-since {reference}: the family that is installed with imgbuild has no "
            "history. Run it in a checkout: `imgbuild init DIR` makes one, `git init` its history."
        )
    commit = resolve(project.root, reference)
    with work_folder("revision") as folder:
        checkout = folder / "checkout"
        checkout.mkdir()
        # Below the root, which may be a folder within the repository.
        listed = _git(project.root, "ls-tree", "-z", "--name-only", commit, "--", *PARTS)
        parts = [name for name in listed.output.split("\0") if name]
        if parts:
            _extract(project.root, [commit, "--", *parts], checkout, reference)
        yield Project(checkout)


def resolve(root: Path, reference: str) -> str:
    """Return the commit that ``reference`` means.

    InputError: it means none here, or the folder is not a Git checkout.
    MachineError: there is no git.
    """
    inside = _git(root, "rev-parse", "--is-shallow-repository")
    if "dubious ownership" in inside.errors:
        raise InputError(
            f"--changed-since {reference}: {root} belongs to another user, so that git does not "
            f"read it. Run `git config --global --add safe.directory {root}`, or be that user."
        )
    if not inside.ok:
        raise InputError(
            f"--changed-since {reference}: {root} is not a Git checkout ({inside.last()})."
        )
    name = f"{reference}^{{commit}}"
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    if found.ok:
        return found.output.strip()
    why = (
        "This clone is shallow: its history was not fetched. Run `git fetch --unshallow`; in "
        "GitHub Actions give actions/checkout `fetch-depth: 0`, in GitLab CI set GIT_DEPTH to 0."
        if inside.output.strip() == "true"
        else "Check its spelling; what only a remote has must be fetched (in CI: fetch-depth: 0)."
    )
    raise InputError(f"--changed-since {reference}: git knows no such revision here. {why}")


def require_in_history(root: Path, reference: str) -> None:
    """Return if a revision is the current commit of a checkout, or one before it.

    InputError: it is none, for example one that was fetched for a review; or as `resolve`.
    """
    commit = resolve(root, reference)
    if not _git(root, "merge-base", "--is-ancestor", commit, "HEAD").ok:
        raise InputError(
            f"--changed-since {reference}: {commit} is not in the history of this checkout. If "
            "you trust its files, check it out."
        )


def _extract(root: Path, files: list[str], checkout: Path, reference: str) -> None:
    archive = checkout.with_suffix(".tar")
    options = ("-c", "tar.umask=0022", "archive", "--format=tar", f"--output={archive}")
    made = _git(root, *options, *files)
    if not made.ok:
        raise InputError(
            f"--changed-since {reference}: git cannot read the files there ({made.last()}). If "
            "this is a clone with a filter, fetch them: `git fetch --refetch --no-filter`, in CI a "
            "clone with fetch-depth: 0 and no filter."
        )
    with tarfile.open(archive) as tar:
        # Debian 12's Python 3.11.2 has no filters. git refuses "..", but not a folder below a link.
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)
        links = {Path(one.name) for one in tar if not one.isreg() and not one.isdir()}
        if wrong := [one.name for one in tar if links.intersection(Path(one.name).parents)]:
            raise InputError(
                f"--changed-since {reference}: {wrong[0]} leads out of the files there."
            )
        tar.extractall(checkout)  # noqa: S202


def _git(root: Path, *arguments: str) -> Finished:
    env = {**os.environ, **_QUIET}
    result = run(["git", "-C", str(root), *arguments], env=env, timeout=_SECONDS)
    if result.code == NOT_FOUND:
        raise MachineError("--changed-since needs git, and there is none. Install git.")
    if result.code == TIMED_OUT:
        raise MachineError(
            f"git {arguments[0]} has not ended within {_SECONDS} s; it may wait for a remote. "
            "Fetch the revision first, then try again."
        )
    return result
