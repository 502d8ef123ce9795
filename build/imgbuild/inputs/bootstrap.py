"""Make base images from the distribution's signed archive, and keep them as OCI layouts."""

import json
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.files import ensure_folder, remove_tree, sha256
from imgbuild.core.process import TimeoutExpired, find_program, run, start
from imgbuild.core.settings import Settings
from imgbuild.core.user_folders import cache_dir, state_dir
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.inputs import oci_layout
from imgbuild.inputs.base import BOOTSTRAPPED, Base
from imgbuild.matrix.images import Image

#: Raise it when this code makes another image from the same recipe and options.
RECIPE_VERSION = 2
#: The distributions whose base image is made if no registry gives the pinned one. Ubuntu's is not:
#: its images are the documented ones, on releases that nobody changes any more.
MADE_IN_PLACE = ("debian",)
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (only used through mkdtemp)
_ROOM = 1 << 30  # bytes; a run was seen to need 0.3 GB at its widest
_LAST_LINES = 20
#: How long a base may take; it takes a minute where the archive is quick.
_LONGEST_SECONDS = 1800

_IDLE = '"$1/etc/apt/apt.conf.d/zz-idle"'
_LIMIT = 'for site in http https; do echo "Acquire::$site::Timeout 60;"; done'
#: For an archive that says nothing for a minute. The image itself keeps apt's own limits.
IDLE_HOOKS = (f"--setup-hook={_LIMIT} > {_IDLE}", f"--customize-hook=rm {_IDLE}")

#: Like the distribution's images in registries: services do not start while packages install.
_POLICY = r"""printf '#!/bin/sh\nexit 101\n' > "$1/usr/sbin/policy-rc.d"; """
_POLICY += 'chmod 755 "$1/usr/sbin/policy-rc.d"'

#: Part of the recipe's digest. They stay in force inside the image, for what is installed later.
MMDEBSTRAP_OPTIONS = (
    "--variant=apt",
    "--mode=auto",
    "--format=tar",
    "--architectures=amd64",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/lintian/*",
    # Headers for compiling extensions of Perl, which is there for git.
    "--dpkgopt=path-exclude=/usr/lib/*/perl/*/CORE/*.h",
    # No translated package descriptions: a third of what `apt-get update` fetches.
    '--aptopt=Acquire::Languages "none"',
    # Device nodes differ between runs with and without root.
    "--skip=output/dev",
    "--skip=chroot/policy-rc.d",
    # mmdebstrap copies these two in from the machine it runs on.
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
    f"--customize-hook={_POLICY}",
)
#: Where mmdebstrap(1) and apt look for the keys of an archive, and the package that brings them.
_KEYS = Path("/usr/share/keyrings")
KEYRINGS = {
    "debian": (_KEYS / "debian-archive-keyring.gpg", "debian-archive-keyring"),
    "ubuntu": (_KEYS / "ubuntu-archive-keyring.gpg", "ubuntu-keyring"),
}


def base_recipe(image: Image, settings: Settings) -> dict[str, str | int]:
    """Return all that decides which base image is made for an image, but the archive itself.

    ``epoch`` is SOURCE_DATE_EPOCH, in seconds: no file of the base is newer. With ``snapshot`` it
    is made from the archive of that time.
    """
    recipe: dict[str, str | int] = {
        "os_name": image.os_name,
        "distribution": image.os.distribution,
        "suite": image.os.suite,
        "epoch": epoch_seconds(image),
    }
    mirror = settings.mirrors.get(image.os.distribution)
    return {**recipe, "snapshot": mirror.snapshot} if mirror and mirror.snapshot else recipe


def recipe_digest(recipe: Mapping[str, str | int]) -> str:
    """Return the sha256, in hexadecimal, of a recipe with the code and options that follow it."""
    parts = [RECIPE_VERSION, dict(recipe), MMDEBSTRAP_OPTIONS]
    return sha256(json.dumps(parts, sort_keys=True).encode())


def base_folder(image: Image, settings: Settings) -> Path:
    """Return where the cache has the base image of the image's recipe."""
    digest = recipe_digest(base_recipe(image, settings))
    return cache_dir() / "base" / f"{image.os_name}-{digest[:12]}"


def bootstrap_base(
    image: Image,
    settings: Settings,
    *,
    refresh: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> Base:
    """Return the base of an image from the cache, or make it with mmdebstrap (20 to 40 s).

    The same recipe gives the same base until the archive changes; ``refresh`` makes it again from
    the archive's state of now. A base in the cache is reused only if its digests are right.

    MachineError: a tool or keyring is missing, the archive cannot be reached, the disk is full.
    """
    final, name = base_folder(image, settings), image.os_name

    def make(folder: Path) -> None:
        _require_packages(image.os.distribution)
        damaged = final.exists() and not refresh
        why = "the base image in the cache is damaged; " if damaged else ""
        log(f"{why}making the base image {name} (about half a minute)")
        with _scratch_folder(f"{name}-{sha256(bytes(final.resolve()))[:12]}") as scratch:
            rootfs = _run_mmdebstrap(image, settings, scratch)
            oci_layout.write_layout(folder, rootfs, name=name, epoch=epoch_seconds(image))

    wait = partial(log, f"another imgbuild is making {name}; waiting for it")
    ensure_folder(final, make, oci_layout.is_whole, refresh=refresh, on_wait=wait)
    return oci_layout.read_layout(final, verify_layer=False, origin=BOOTSTRAPPED)


def find_bootstrapped(image: Image, settings: Settings) -> Base | None:
    """Return the base of an image if it was made before; its layer is not read."""
    folder = base_folder(image, settings)
    with suppress(InputError):
        return oci_layout.read_layout(folder, verify_layer=False, origin=BOOTSTRAPPED)
    return None


def _require_packages(distribution: str) -> None:
    """Raise MachineError unless this machine can make a base image of the distribution."""
    if missing := missing_packages(distribution):
        raise MachineError(
            f"A base image of {distribution} is made by mmdebstrap from the distribution's "
            f"archive, and this machine lacks: {', '.join(missing)}. Install with "
            f"`sudo apt-get install -y {' '.join(missing)}`, or take the base image from a "
            "registry (imgbuild.local.yaml, base: from: registry)."
        )


def missing_packages(distribution: str) -> list[str]:
    keyring, package = KEYRINGS[distribution]
    present = {
        package: keyring.is_file(),
        "mmdebstrap": find_program("mmdebstrap") is not None,
        "uidmap": os.geteuid() == 0 or find_program("newuidmap") is not None,
    }
    return [name for name, is_present in present.items() if not is_present]


def _run_mmdebstrap(image: Image, settings: Settings, scratch: Path) -> Path:
    target, no_keys = scratch / "rootfs.tar", scratch / "no-keys"
    no_keys.mkdir()
    # Only the archive's own keys count, not what else this machine's apt trusts; and the sources
    # written into the image do not depend on what it trusts.
    trust = [f"--keyring={KEYRINGS[image.os.distribution][0]}", f"--keyring={no_keys}"]
    suite, source = image.os.suite, image.os.suite
    hooks = [*IDLE_HOOKS]
    mirror = settings.mirrors.get(image.os.distribution)
    if mirror and mirror.snapshot:
        hooks += _snapshot_hooks(mirror.url.rstrip("/"), mirror.snapshot)
        source = f"{suite} as of {mirror.snapshot}"
    options = [*MMDEBSTRAP_OPTIONS, *hooks, *trust, suite, str(target)]
    epoch = epoch_seconds(image)
    environment = {"SOURCE_DATE_EPOCH": str(epoch), "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
    log_path = state_dir() / "logs" / f"{time.strftime('%Y%m%dT%H%M%S')}-inputs.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [*_isolate_mounts(), "mmdebstrap", *options]
    with (
        log_path.open("w", encoding="utf-8") as out,
        start(command, env={**os.environ, **environment}, output=out) as process,
    ):
        try:
            status = process.wait(_LONGEST_SECONDS)
        except TimeoutExpired:
            raise MachineError(
                f"The base of {suite} was not made within {_LONGEST_SECONDS // 60} minutes: "
                f"the archive is too slow, or no longer answers. The whole log is {log_path}."
            ) from None
    if status or not target.is_file():
        last = log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        said = [line for line in last if line.startswith("E:")] or last
        raise MachineError(
            f"The base of {source} could not be made: mmdebstrap ended with status {status}, "
            f"saying: {' | '.join(said) or 'nothing'}. The whole log is {log_path}. Check that "
            f"the archive can be reached from here and that {scratch.parent} has 1 GB "
            f"free (`df -h {scratch.parent}`; set TMPDIR to work elsewhere), and run this again."
        )
    _add_dev(target, epoch)
    return target


def _add_dev(rootfs: Path, epoch: int) -> None:
    """Add an empty /dev: an engine that has to make it leaves it in a layer, with its time."""
    folder = tarfile.TarInfo("./dev")
    folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, epoch
    with tarfile.open(rootfs, "a") as archive:
        archive.addfile(folder)


def _snapshot_hooks(service: str, snapshot: str) -> list[str]:
    """Return the options by which packages come from the snapshot, which the image won't know."""
    dated = rf"deb [check-valid-until=no] {service}/archive/debian\1/{snapshot} "
    edit = f"s#^deb https?://[^ ]*/debian(-security)?/? #{dated}#"
    return [
        f'--setup-hook=cd "$1/etc/apt" && sed -i.usual -E "{edit}" sources.list',
        '--customize-hook=cd "$1/etc/apt" && mv sources.list.usual sources.list',
    ]


def _isolate_mounts() -> list[str]:
    """Return the command that gives a run by root its own mount namespace, if that is allowed.

    As root, mmdebstrap mounts /proc, /sys and parts of /dev into its chroot where the whole machine
    sees them, and a killed run cannot take them away. In a namespace they go with its last process.
    A root that may not make one (in a container) may not mount either; without root, mmdebstrap
    makes its own.
    """
    command = ["unshare", "--mount", "--"]
    return command if os.geteuid() == 0 and run([*command, "true"]).ok else []


@contextmanager
def _scratch_folder(name: str) -> Iterator[Path]:
    """Yield an empty folder for mmdebstrap to work in.

    ``name`` is of the recipe and the cache, whose lock the caller holds: what another process works
    in for another cache has another name.
    """
    prefix, parent = f"imgbuild-{os.getuid()}-{name}-", _scratch_parent()
    for leftover in parent.glob(f"{prefix}*"):  # of a killed run
        if leftover.lstat().st_uid == os.getuid():
            remove_tree(leftover)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        folder.chmod(0o755)  # without root, mmdebstrap works here under a subordinate id
        yield folder
    finally:
        remove_tree(folder)


def _scratch_parent() -> Path:
    """Return a folder in memory, since dpkg writes and syncs thousands of small files.

    But not if the user has set a TMPDIR, or it has no room, or programs may not run from it.
    """
    if "TMPDIR" not in os.environ and os.access(_SHARED_MEMORY, os.W_OK):
        status = os.statvfs(_SHARED_MEMORY)
        if status.f_bavail * status.f_frsize >= _ROOM and not status.f_flag & os.ST_NOEXEC:
            return _SHARED_MEMORY
    return Path(tempfile.gettempdir())
