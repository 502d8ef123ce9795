"""A folder that `imgbuild build --fetch` filled: listings of images' inputs, and builds from it."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import pydantic.dataclasses
from pydantic import TypeAdapter, ValidationError

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import ContentStore, json_sha256, link_or_copy, sha256, write_text
from imgbuild.core.process import find_program
from imgbuild.core.project import Project
from imgbuild.core.scalars import refusal_reason
from imgbuild.core.settings import PrefixInterpreter, Settings, base_setting
from imgbuild.core.sources import Kind, Source, StoredName
from imgbuild.dockerfile.render import own_dockerfile
from imgbuild.dockerfile.stages import Dockerfile, Stage, needed_stages
from imgbuild.inputs.bootstrap import KEYRINGS
from imgbuild.inputs.build_inputs import (
    CONDA,
    FILES,
    SUPPLIED,
    BuildInputs,
    list_downloads,
    repository_keyrings,
)
from imgbuild.inputs.download import digest_contents, store_content
from imgbuild.inputs.oci_layout import is_named, is_pinned, is_whole, read_layout
from imgbuild.inputs.signed_packages import find_whole_file, verify_packages
from imgbuild.locks.lockfile import read_lock, read_lock_text
from imgbuild.matrix.images import Image

#: The key in ``Listing.request`` that an offline build ignores, because it uses the fetched base.
BASE = "base"
#: The call of images/files/apt/install in a Dockerfile.
APT_INSTALL = "sh /run/apt/install"
#: The named build context of apt and Python packages, which the Dockerfiles mount.
OFFLINE = "offline"
#: The named build context of each kind of file, and the folder in it.
_PLACES = {
    Kind.DOWNLOAD: (FILES, "."),
    Kind.CONDA: (CONDA, "."),
    Kind.PYTHON: (OFFLINE, "python"),
    Kind.APT_LIST: (OFFLINE, "apt/lists"),
    Kind.APT_PACKAGE: (OFFLINE, "apt/archives"),
    Kind.APT_MIRRORS: (OFFLINE, "apt"),
}
_SHORT = 12
_INDEX = re.compile(r"(?:.*_dists_)?(.+)_(?:In)?Release")
_DATE = re.compile(r"^Date: (?:\w+, )?(.+)$", re.MULTILINE)


@pydantic.dataclasses.dataclass(frozen=True, config={"extra": "forbid"})
class Listing:
    """All inputs of one image, as stored in ``images/<image>.json`` of a fetched folder.

    ``request`` has a short digest of each kind of input, to show which inputs changed later.
    ``base`` is the base image's reference in its registry, or empty if the base came from an OCI
    layout on the machine that fetched it. ``layout`` is the name of the base's folder. ``schema``
    increases if a build can no longer use older listings.
    """

    image: str
    request: dict[str, str]
    base: str
    layout: StoredName
    items: tuple[Source, ...]
    schema: Literal[3] = 3

    def base_folder(self, folder: Path) -> Path:
        return folder / "base" / self.layout

    def contents(self, folder: Path) -> str:
        """Return a line with a digest of all listed files, the base and the date of each index.

        People can compare this line on both machines. Signatures alone are not enough: an index of
        last year is also signed, and a base image that `imgbuild build --fetch` made is not.
        """
        layout = read_layout(self.base_folder(folder), verify_layer=False)
        store = ContentStore(folder)
        contents = []
        names = [f"base image {self.layout}"]
        for item in self.items:
            contents.append((item.kind, item.name, item.sha256))
            index = _INDEX.fullmatch(item.name)
            if index and item.kind is Kind.APT_LIST:
                text = store.path(item.sha256).read_text("utf-8", "replace")
                line = _DATE.search(text)
                date = line[1] if line else "no date"
                names.append(f"{index[1]} of {date}")
        contents.sort()
        digest = json_sha256([layout.digest, contents])
        listed = ", ".join(names)
        return f"{self.image} sha256:{digest}: {listed}"

    def missing(self, store: ContentStore) -> tuple[Source, ...]:
        return tuple(item for item in self.items if not store.find(item.sha256, item.size))


def listing_path(folder: Path, image: str) -> Path:
    return folder / "images" / f"{image}.json"


def write_listing(listing: Listing, folder: Path) -> None:
    path = listing_path(folder, listing.image)
    text = json.dumps(asdict(listing), indent=1, sort_keys=True)
    write_text(path, text + "\n")


def read_listing(folder: Path, image: str) -> Listing | None:
    """Return an image's listing, or None if the image was never fetched into ``folder``.

    InputError: the file is not a listing, or it is from another version of imgbuild.
    """
    path = listing_path(folder, image)
    if not path.exists():
        return None
    try:
        return TypeAdapter(Listing).validate_json(path.read_bytes())
    except ValidationError as error:
        reason = refusal_reason(error)
        raise InputError(
            f"{path} is no listing of this imgbuild ({reason}). Remove it and "
            "run `imgbuild build --fetch` again: the files beside it are kept."
        ) from error


def fetch_request(image: Image, project: Project, settings: Settings) -> dict[str, str]:
    """Return a short digest of each kind of input, to detect changes after a fetch.

    InputError: a lock is missing, or a conda package has no recorded sha256.
    """
    downloads = list_downloads(image, project.locks, settings).all
    digests = {file.name: file.sha256 for file in downloads}
    installed = []
    for stage in install_stages(image, project, settings):
        arguments = packages(stage)
        installed.append([stage.parent, arguments])
    base = settings.base_for(image.os_name, image.os.image)
    parts = {
        "downloads": digest_contents(digests),
        "Horovod": image.horovod.sha256 if image.horovod else "",
        "glibc": image.os.glibc,
        "packages": json.dumps(installed),
        BASE: base.model_dump_json(exclude_none=True),
    }
    mirror = settings.mirrors.get(image.os.distribution)
    if mirror and mirror.snapshot:
        parts["snapshot"] = mirror.snapshot
    for title, lock in image.titled_locks.items():
        parts[title] = read_lock_text(project.locks / lock)
    request = {}
    for name, value in parts.items():
        digest = sha256(value.encode())
        request[name] = digest[:_SHORT]
    return request


def install_stages(image: Image, project: Project, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages that install apt packages.

    If the settings name a CPython prefix, the stages of its Dockerfile replace the image's stage
    `cpython`.
    """
    interpreter = settings.interpreter_for(image.version_of("python"), image.machine)
    is_local = isinstance(interpreter, PrefixInterpreter)
    dockerfile = own_dockerfile(image, project.templates)
    replaced = {*SUPPLIED}
    if is_local:
        replaced.add("cpython")
    needed = needed_stages(dockerfile.stages, dockerfile.final.name, replaced)
    stages = [*needed.values()]
    if is_local:
        text = project.prefix_dockerfile.read_text("utf-8")
        stages += Dockerfile(text).stages.values()
    return tuple(stage for stage in stages if install_instruction(stage))


def install_instruction(stage: Stage) -> str:
    """Return the stage's RUN instruction that installs apt packages, or an empty text."""
    for instruction in stage.instructions:
        if instruction.line.startswith("RUN ") and APT_INSTALL in instruction.text:
            return instruction.text
    return ""


def packages(stage: Stage) -> str:
    """Return the arguments of ``apt/install``: options, repositories and packages."""
    instruction = install_instruction(stage)
    arguments = instruction.partition(APT_INSTALL)[2]
    return " ".join(arguments.split())


def offline_contexts(listing: Listing, folder: Path, cache: Path) -> Mapping[str, Path]:
    """Return the named build contexts of a listed image, with its downloads, packages and lists."""
    contexts: dict[str, dict[str, str]] = {OFFLINE: {}}
    for item in listing.items:
        context, place = _PLACES[item.kind]
        files = contexts.setdefault(context, {})
        path = Path(place, item.name)
        files[str(path)] = item.sha256
    return {name: _context(name, files, folder, cache) for name, files in contexts.items()}


def _context(name: str, files: Mapping[str, str], fetched: Path, cache: Path) -> Path:
    store = ContentStore(fetched)

    def make(folder: Path) -> None:
        for path, digest in files.items():
            source = find_whole_file(store, digest)
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, target)

    digest = digest_contents(files)
    final = cache / "contexts" / f"{name}-{digest[:16]}"
    return store_content(final, files, make)


def offline_settings(
    settings: Settings, images: Iterable[Image], listings: Mapping[str, Listing], folder: Path
) -> Settings:
    """Return the settings for a build without a network: no logins, and bases from ``folder``.

    A layout that the settings name is kept, because it is on this machine already.
    """
    bases = dict(settings.base)
    for image in images:
        choice = settings.base_for(image.os_name, image.os.image)
        if not choice.path:
            path = listings[image.name].base_folder(folder)
            bases[image.os_name] = base_setting("layout", path=str(path))
    return settings.model_copy(update={"base": bases, "netrc": None})


def apply_known_bases(
    inputs: BuildInputs, images: Iterable[Image], listings: Mapping[str, Listing]
) -> BuildInputs:
    """Return the inputs with the registry's digest of each base that came from a registry.

    With this digest, an image that was built offline is also up to date with a network.
    """
    bases = dict(inputs.bases)
    for image in images:
        listing = listings[image.name]
        digest = listing.base.rpartition("@")[2]
        if digest:
            base = bases[image.base_name]
            bases[image.base_name] = replace(base, digest=digest)
    return replace(inputs, bases=bases)


def read_listings(
    folder: Path, images: Iterable[Image], project: Project, settings: Settings
) -> dict[str, Listing]:
    """Return the listings of ``images`` in a fetched folder by name, after verifying them.

    InputError: an image was never fetched, or its inputs have changed, or a file is missing,
        damaged or not signed.
    MachineError: gpgv or a keyring is missing on this machine.
    """
    return {image.name: _check_listing(folder, image, project, settings) for image in images}


def _check_listing(folder: Path, image: Image, project: Project, settings: Settings) -> Listing:
    listing = read_listing(folder, image.name)
    again = (
        f"On a machine with a network, run `imgbuild build {image.name} --fetch DIR`, and copy DIR "
        f"to {folder}."
    )
    if listing is None:
        raise InputError(f"{folder} has no files of {image.name}. {again}")
    request = fetch_request(image, project, settings)
    differing = {name for name, _ in request.items() ^ listing.request.items()}
    differing.discard(BASE)
    if differing:
        changed = ", ".join(sorted(differing))
        raise InputError(
            f"The inputs of {image.name} in this checkout or in the settings have changed since "
            f"{folder} was fetched (changed: {changed}). {again}"
        )
    missing = listing.missing(ContentStore(folder))
    if missing:
        first, *others = missing
        lacking = f"{first.name} ({first.kind}, sha256 {first.sha256})"
        if others:
            lacking += f" and {len(others)} more"
        raise InputError(f"{folder} lacks {lacking} of {image.name}. {again}")
    if not is_whole(listing.base_folder(folder)):
        what = f"base image base/{listing.layout} of {image.name} is missing or damaged"
        raise InputError(f"{folder}: the {what}. {again}")
    choice = settings.base_for(image.os_name, image.os.image)
    if choice.path:
        listing = replace(listing, base="")
    _verify(listing, folder, image, project, settings)
    return listing


def _verify(
    listing: Listing, folder: Path, image: Image, project: Project, settings: Settings
) -> None:
    """Verify the files that the build itself does not verify.

    Each must match this checkout, or have a valid signature. The Dockerfile verifies downloads, by
    their sha256 in the matrix.
    """
    _verify_base(listing, folder, image, settings)
    _verify_items(listing, folder, image, project, settings)
    _verify_signatures(listing, folder, image, project, settings)


def _verify_base(listing: Listing, folder: Path, image: Image, settings: Settings) -> None:
    base = listing.base_folder(folder)
    choice = settings.base_for(image.os_name, image.os.image)
    pins = {listing.base, choice.image or ""} - {""}
    digests = [pin.rpartition("@")[2] for pin in pins]
    is_meant = choice.path or is_named(base, image.os_name)
    if is_meant and all(is_pinned(base, digest) for digest in digests):
        return
    path = listing_path(folder, image.name)
    what = " and ".join(sorted(pins)) or "its original name"
    raise InputError(
        f"{path}: the base image in {base} does not match {what}. Fetch again, and copy the folder "
        "again. To use another base, name it in imgbuild.local.yaml (base: "
        f"{image.os_name})."
    )


def _verify_items(
    listing: Listing, folder: Path, image: Image, project: Project, settings: Settings
) -> None:
    """Raise InputError if a package's sha256 is not in the checkout, or mirrors are invalid."""
    path = listing_path(folder, image.name)
    store = ContentStore(folder)
    downloads = list_downloads(image, project.locks, settings).all
    known = {(file.name, file.sha256) for file in downloads}
    locked = set[str]()
    if image.horovod:
        locked.add(image.horovod.sha256)
    for name in image.lock_names:
        lock = read_lock(project.locks / name)
        for hashes in lock.hashes.values():
            locked.update(hashes)
    for item in listing.items:
        is_known = True
        if item.kind is Kind.CONDA:
            is_known = (item.name, item.sha256) in known
        elif item.kind is Kind.PYTHON:
            is_known = item.sha256 in locked
        if not is_known:
            raise InputError(
                f"{path}: {item.name} has a sha256 that is neither in images/locks nor in "
                "matrix.yaml. Fetch again, and copy the folder again."
            )
        if item.kind is Kind.APT_MIRRORS:
            mirrors = find_whole_file(store, item.sha256)
            _verify_mirrors(mirrors, path)


def _verify_signatures(
    listing: Listing, folder: Path, image: Image, project: Project, settings: Settings
) -> None:
    """Verify the signatures of apt packages with the keyrings of this machine and the checkout."""
    keyrings = repository_keyrings(image.matrix, settings, project.keyrings)
    archive, package = KEYRINGS[image.os.distribution]
    mirror = settings.mirrors.get(image.os.distribution)
    if mirror and mirror.keyring:
        archive = Path(mirror.keyring)
    lacking = []
    if not find_program("gpgv"):
        lacking.append("gpgv")
    if not archive.is_file():
        lacking.append(package)
    if lacking:
        names = " ".join(lacking)
        raise MachineError(
            f"The signatures in {folder} cannot be verified, because this machine lacks {names}. "
            f"Install with `sudo apt-get install -y {names}`."
        )
    trusted = [archive]
    if image.apt_cuda:
        trusted += keyrings.values()
    verify_packages(listing.items, ContentStore(folder), trusted)


def _verify_mirrors(mirrors: Path, listing: Path) -> None:
    """Raise InputError unless each line is a valid NAME URL; a shell in the build reads it."""
    try:
        text = mirrors.read_bytes().decode()
        for line in filter(None, text.split("\n")):
            name, url = line.split(" ")
            Settings.model_validate({"mirrors": {name: url}})
    except ValueError as error:
        raise InputError(
            f"{listing}: {mirrors} has a line that is not NAME URL of a mirror. Fetch again, and "
            "copy the folder again."
        ) from error
