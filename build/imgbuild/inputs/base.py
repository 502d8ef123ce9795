"""Make base images from the distribution's archive, and keep them as OCI layouts.

No registry is needed: apt's signatures prove every package. The same recipe gives the same image
until the archive changes; ``refresh`` makes it again with the archive's updates.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from imgbuild.errors import InputError, MachineError
from imgbuild.files import sha256, stored_folder
from imgbuild.inputs.bootstrap import (
    MMDEBSTRAP_OPTIONS,
    require_tools,
    run_mmdebstrap,
    scratch_folder,
)
from imgbuild.inputs.oci_layout import DamagedLayoutError, read_layout, write_archive, write_layout

#: Raise it when this code makes another image from the same recipe and options.
RECIPE_VERSION = 1
REPOSITORY = "imgbuild/base"


@dataclass(frozen=True)
class BaseRecipe:
    """What a base image is made from."""

    os_name: str
    """The matrix's name of it, such as ``debian-12``."""
    distribution: str
    """Whose archive and keys: ``debian`` or ``ubuntu``."""
    suite: str
    """The release's code name, such as ``bookworm``."""
    epoch: int
    """SOURCE_DATE_EPOCH, in seconds: no file of the image is newer."""

    @property
    def digest(self) -> str:
        """The sha256, in hexadecimal, over all that decides what is made (but the archive)."""
        parts = [RECIPE_VERSION, asdict(self), MMDEBSTRAP_OPTIONS]
        return sha256(json.dumps(parts, sort_keys=True).encode())


@dataclass(frozen=True)
class BaseLayout:
    """A base image on disk, ready for an engine."""

    path: Path
    """OCI layout folder (``oci-layout://``), which also holds docker's ``manifest.json``."""
    image_id: str
    """Digest of the config: the image's id on a graph driver. ``sha256:…``."""
    reference: str
    """``imgbuild/base:<os>-<12 digits of image_id>``: another content has another name."""
    manifest_digest: str
    """Digest of the manifest: the image's id on a containerd image store. ``sha256:…``."""


def bootstrap_base(
    recipe: BaseRecipe,
    cache: Path,
    *,
    refresh: bool = False,
    log: Path,
    say: Callable[[str], None] = lambda _: None,
) -> BaseLayout:
    """Return the base image of ``recipe``, from ``cache`` or made by mmdebstrap (20 to 40 s).

    ``refresh`` makes it again from the archive's state of now. The lines of mmdebstrap go to
    ``log``. An image in the cache is reused only if its digests are right.

    Raises:
        InputError: the distribution is unknown.
        MachineError: a tool or keyring is missing, the archive cannot be reached, the disk is full.

    """
    final = _place(recipe, cache)

    def make(folder: Path) -> None:
        keyring = require_tools(recipe.distribution)
        with scratch_folder(final.name) as scratch:
            rootfs = run_mmdebstrap(
                recipe.suite,
                keyring=keyring,
                epoch=recipe.epoch,
                scratch=scratch,
                log=log,
            )
            tag = recipe.os_name + "-{id}"
            write_layout(folder, rootfs, repository=REPOSITORY, tag=tag, epoch=recipe.epoch)

    def wait() -> None:
        say(f"another imgbuild is making {recipe.os_name}; waiting for it")

    stored_folder(final, make, _is_whole, refresh=refresh, on_wait=wait)
    return _as_layout(final)


def find_base(recipe: BaseRecipe, cache: Path) -> BaseLayout | None:
    """Return the base image of ``recipe`` if it was made before; its layer is not read.

    A damaged layer shows itself when the engine loads it: ``bootstrap_base`` makes it again.
    """
    folder = _place(recipe, cache)
    with suppress(DamagedLayoutError):
        ids, reference = read_layout(folder, verify_layer=False)
        return BaseLayout(folder, ids.config, reference, ids.manifest)
    return None


def whole_base(
    found: BaseLayout, make: Callable[[], BaseLayout], say: Callable[[str], None]
) -> None:
    """Check all digests of a base image, and ``make`` it again if one is wrong.

    Raises:
        MachineError: it was made again with other content, so the plan no longer holds.

    """
    try:
        read_layout(found.path)
    except DamagedLayoutError as error:
        say(f"the base image in the cache is damaged ({error}): it is made again")
        if make().image_id != found.image_id:
            raise MachineError(
                f"The base image in {found.path} was damaged and has been made again; the "
                "archive has moved on meanwhile, so it is another one now. Run this again."
            ) from error


def open_layout(folder: Path) -> BaseLayout:
    """Return the base image in an OCI layout of this machine.

    Raises:
        InputError: it is no whole layout of one image.

    """
    try:
        ids, reference = read_layout(folder, verify_layer=False)
    except DamagedLayoutError as error:
        raise InputError(f"{folder} is no OCI layout of a base image: {error}") from error
    return BaseLayout(folder, ids.config, reference, ids.manifest)


def save_archive(layout: BaseLayout, path: Path) -> None:
    """Write the tar that ``docker load`` reads."""
    with path.open("wb") as stream:
        write_archive(layout.path, stream)


def _place(recipe: BaseRecipe, cache: Path) -> Path:
    return cache / "base" / f"{recipe.os_name}-{recipe.digest[:12]}"


def _as_layout(folder: Path) -> BaseLayout:
    ids, reference = read_layout(folder)
    return BaseLayout(folder, ids.config, reference, ids.manifest)


def _is_whole(folder: Path) -> bool:
    with suppress(DamagedLayoutError):
        read_layout(folder)
        return True
    return False
