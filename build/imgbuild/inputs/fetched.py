"""A folder that `imgbuild fetch` filled: listings of images' inputs, and builds from it."""

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
from imgbuild.dockerfile.render import render_dockerfile
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

#: The part of a request that an offline build does not compare: it takes the base that was fetched.
BASE = "base"
#: What calls images/files/apt/install in a Dockerfile.
APT_INSTALL = "sh /run/apt/install"
#: The named build contexts that the Dockerfiles mount, and where in them each kind of file is.
OFFLINE = "offline"
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
    """Everything one image is built from, as in ``images/<image>.json`` of a fetched folder.

    ``request`` has a short digest of each kind of input, to find what changed since; ``base`` is
    the base image's reference in its registry, empty if it was made on the machine that fetched;
    ``layout`` is the folder that holds it. ``schema`` is raised when a listing of before can no
    longer be built from.
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
        """Return a digest of all that is listed, the base image and the date of each index.

        For people to compare: the index of last year is signed as well, and a base image that was
        made by `imgbuild fetch` is not.
        """
        layout = read_layout(self.base_folder(folder), verify_layer=False)
        items = sorted((item.kind, item.name, item.sha256) for item in self.items)
        named = [f"base image {self.layout}"]
        for item in self.items:
            if (index := _INDEX.fullmatch(item.name)) and item.kind is Kind.APT_LIST:
                text = ContentStore(folder).path(item.sha256).read_text("utf-8", "replace")
                named.append(f"{index[1]} of {(_DATE.findall(text) or ['no date'])[0]}")
        digest = json_sha256([layout.digest, items])
        return f"{self.image} sha256:{digest}: {', '.join(named)}"

    def missing(self, store: ContentStore) -> tuple[Source, ...]:
        return tuple(item for item in self.items if not store.find(item.sha256, item.size))


def listing_path(folder: Path, image: str) -> Path:
    return folder / "images" / f"{image}.json"


def write_listing(listing: Listing, folder: Path) -> None:
    text = json.dumps(asdict(listing), indent=1, sort_keys=True)
    write_text(listing_path(folder, listing.image), text + "\n")


def read_listing(folder: Path, image: str) -> Listing | None:
    """Return an image's listing, ``None`` if it was never fetched into ``folder``.

    InputError: the file is no listing, or one of another imgbuild.
    """
    path = listing_path(folder, image)
    if not path.exists():
        return None
    try:
        return TypeAdapter(Listing).validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(
            f"{path} is no listing of this imgbuild ({refusal_reason(error)}). Remove it and "
            "run `imgbuild fetch` again: the files beside it are kept."
        ) from error


def fetch_request(image: Image, project: Project, settings: Settings) -> dict[str, str]:
    """Return a short digest of each kind of input that is fetched.

    InputError: a lock is missing, or a conda package has no recorded sha256.
    """
    downloads = list_downloads(image, project.locks, settings).all
    stages = install_stages(image, project, settings)
    parts = {
        "downloads": digest_contents({file.name: file.sha256 for file in downloads}),
        "Horovod": image.horovod.sha256 if image.horovod else "",
        "glibc": image.os.glibc,
        "packages": json.dumps([[stage.parent, packages(stage)] for stage in stages]),
        BASE: settings.base_for(image.os_name, image.os.image).model_dump_json(exclude_none=True),
    }
    if (mirror := settings.mirrors.get(image.os.distribution)) and mirror.snapshot:
        parts["snapshot"] = mirror.snapshot
    for title, lock in image.titled_locks.items():
        parts[title] = read_lock_text(project.locks / lock)
    return {name: sha256(value.encode())[:_SHORT] for name, value in parts.items()}


def install_stages(image: Image, project: Project, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages that install packages; a local prefix has its own in place of CPython's."""
    local = isinstance(settings.interpreter_for(image.version_of("python")), PrefixInterpreter)
    dockerfile = render_dockerfile(image, project.templates)
    replaced = SUPPLIED | ({"cpython"} if local else set())
    stages = [*needed_stages(dockerfile.stages, dockerfile.final.name, replaced).values()]
    if local:
        stages += Dockerfile(project.prefix_dockerfile.read_text("utf-8")).stages.values()
    return tuple(stage for stage in stages if install_instruction(stage))


def install_instruction(stage: Stage) -> str:
    """Return the RUN instruction of the stage that installs packages; empty if it has none."""
    for instruction in stage.instructions:
        if instruction.line.startswith("RUN ") and APT_INSTALL in instruction.text:
            return instruction.text
    return ""


def packages(stage: Stage) -> str:
    """Return the arguments of ``apt/install``: packages, repositories, options."""
    return " ".join(install_instruction(stage).partition(APT_INSTALL)[2].split())


def offline_contexts(listing: Listing, folder: Path, cache: Path) -> Mapping[str, Path]:
    """Return the named contexts of a listed image: its downloads, packages and lists."""
    contexts: dict[str, dict[str, str]] = {OFFLINE: {}}
    for item in listing.items:
        context, place = _PLACES[item.kind]
        contexts.setdefault(context, {})[str(Path(place, item.name))] = item.sha256
    return {name: _context(name, files, folder, cache) for name, files in contexts.items()}


def _context(name: str, files: Mapping[str, str], store: Path, cache: Path) -> Path:
    def make(folder: Path) -> None:
        for path, digest in files.items():
            source, target = find_whole_file(ContentStore(store), digest), folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source, target)

    final = cache / "contexts" / f"{name}-{digest_contents(files)[:16]}"
    return store_content(final, files, make)


def offline_settings(
    settings: Settings, images: Iterable[Image], listings: Mapping[str, Listing], folder: Path
) -> Settings:
    """Return the settings of a build without a network: no login, and base images from a folder.

    A layout that the settings name stays: it is this machine's, not the folder's.
    """
    bases = dict(settings.base)
    for image in images:
        if not settings.base_for(image.os_name, image.os.image).path:
            path = listings[image.name].base_folder(folder)
            bases[image.os_name] = base_setting("layout", path=str(path))
    return settings.model_copy(update={"base": bases, "netrc": None})


def apply_known_bases(
    inputs: BuildInputs, images: Iterable[Image], listings: Mapping[str, Listing]
) -> BuildInputs:
    """Return the inputs with base images of a registry under their digest there.

    So an image that was built without a network is up to date where there is one.
    """
    bases = dict(inputs.bases)
    for image in images:
        digest = listings[image.name].base.rpartition("@")[2]
        if digest:
            bases[image.os_name] = replace(bases[image.os_name], digest=digest)
    return replace(inputs, bases=bases)


def read_listings(
    folder: Path, images: Iterable[Image], project: Project, settings: Settings
) -> dict[str, Listing]:
    """Return the listings of ``images`` in a fetched folder by name; no file of them is missing.

    InputError: an image was never fetched, or for other inputs, or files are missing.
    """
    return {image.name: _check_listing(folder, image, project, settings) for image in images}


def _check_listing(folder: Path, image: Image, project: Project, settings: Settings) -> Listing:
    listing = read_listing(folder, image.name)
    again = f"Run `imgbuild fetch` for it where there is a network, into {folder}."
    if listing is None:
        raise InputError(f"{folder} holds nothing for {image.name}. {again}")
    request = fetch_request(image, project, settings)
    changed = sorted({name for name, _ in request.items() ^ listing.request.items()})
    if others := [name for name in changed if name != BASE]:
        raise InputError(
            f"{folder} was fetched for other inputs of {image.name} than this checkout and these "
            f"settings have (changed: {', '.join(others)}). {again}"
        )
    missing = listing.missing(ContentStore(folder))
    if missing:
        first = f"{missing[0].name} ({missing[0].kind}, sha256 {missing[0].sha256})"
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{folder} lacks {first}{more} of {image.name}. {again}")
    if not is_whole(listing.base_folder(folder)):
        what = f"base image base/{listing.layout} of {image.name} is missing or damaged"
        raise InputError(f"{folder}: the {what}. {again}")
    if settings.base_for(image.os_name, image.os.image).path:
        listing = replace(listing, base="")
    _verify(listing, folder, image, project, settings)
    return listing


def _verify(
    listing: Listing, folder: Path, image: Image, project: Project, settings: Settings
) -> None:
    """Raise unless what the build itself believes is what this checkout or a signature names.

    Downloads are verified in the Dockerfile, by the sha256 of the matrix.
    """
    path, store = listing_path(folder, image.name), ContentStore(folder)
    base, choice = listing.base_folder(folder), settings.base_for(image.os_name, image.os.image)
    pins = {listing.base, choice.image or ""} - {""}
    named = choice.path or is_named(base, image.os_name)
    if not named or not all(is_pinned(base, pin.rpartition("@")[2]) for pin in pins):
        what = " and ".join(sorted(pins)) or "named as it was"
        raise InputError(
            f"{path}: the base image in {base} is not {what}. Fetch again, and copy the folder "
            f"anew; if another base is meant, imgbuild.local.yaml can name it (base: "
            f"{image.os_name})."
        )
    downloads = list_downloads(image, project.locks, settings).all
    known = {(file.name, file.sha256) for file in downloads}
    locked = {image.horovod.sha256} if image.horovod else set[str]()
    for name in image.lock_names:
        for hashes in read_lock(project.locks / name).hashes.values():
            locked.update(hashes)
    for item in listing.items:
        conda = item.kind is Kind.CONDA and (item.name, item.sha256) not in known
        if conda or (item.kind is Kind.PYTHON and item.sha256 not in locked):
            raise InputError(f"{path}: {item.name} has a sha256 that images/locks do not have.")
        if item.kind is Kind.APT_MIRRORS:
            _verify_mirrors(find_whole_file(store, item.sha256), path)
    keyrings = repository_keyrings(image.matrix, settings, project.keyrings)
    archive, package = KEYRINGS[image.os.distribution]
    mirror = settings.mirrors.get(image.os.distribution)
    if mirror and mirror.keyring:
        archive = Path(mirror.keyring)
    present = {"gpgv": find_program("gpgv"), package: archive.is_file()}
    if lacking := " ".join(name for name, is_present in present.items() if not is_present):
        raise MachineError(
            f"The signatures in {folder} cannot be verified: this machine lacks {lacking}. Install "
            f"with `sudo apt-get install -y {lacking}`."
        )
    verify_packages(listing.items, store, [archive, *(keyrings.values() if image.apt_cuda else ())])


def _verify_mirrors(mirrors: Path, listing: Path) -> None:
    """Raise unless each line is NAME URL as settings admit it: the shell of a build reads it."""
    try:
        for line in filter(None, mirrors.read_bytes().decode().split("\n")):
            name, url = line.split(" ")
            Settings.model_validate({"mirrors": {name: url}})
    except ValueError as error:
        raise InputError(f"{listing}: {mirrors} holds no lines NAME URL of mirrors.") from error
