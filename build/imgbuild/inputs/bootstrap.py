"""Make base images from a distribution's signed archive, and cache them as OCI layouts."""

import json
import os
import platform
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

#: Increase this if a change of the code makes another image from the same recipe and options.
RECIPE_VERSION = 2
#: The distributions whose base image imgbuild makes if no registry answers. Ubuntu is not one of
#: them, because its images are the documented ones, on releases that no longer change.
MADE_IN_PLACE = ("debian",)
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (only used through mkdtemp)
_ROOM = 1 << 30  # bytes; a measured run needed 0.3 GB at its peak
_LAST_LINES = 20
#: mmdebstrap starts a Python program for each package. The system's own Python comes first, because
#: a version manager's `python3` takes five times as long to start.
_SYSTEM_PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"
#: Time limit for making a base. It takes a minute if the archive is fast.
_LONGEST_SECONDS = 1800

#: Debian's packages that run programs for other architectures, and that test whether they run.
EMULATOR = ("qemu-user-static", "binfmt-support", "arch-test")

_IDLE = '"$1/etc/apt/apt.conf.d/zz-idle"'
_LIMIT = 'for site in http https; do echo "Acquire::$site::Timeout 60;"; done'
#: Stop waiting for an archive that sends nothing for a minute. The image keeps apt's own limits.
IDLE_HOOKS = (f"--setup-hook={_LIMIT} > {_IDLE}", f"--customize-hook=rm {_IDLE}")

#: Keep services from starting while packages are installed, as the distribution's own images do.
_POLICY = r"""printf '#!/bin/sh\nexit 101\n' > "$1/usr/sbin/policy-rc.d"; """
_POLICY += 'chmod 755 "$1/usr/sbin/policy-rc.d"'

#: mmdebstrap's option for the architecture, which images for another one replace.
_FOR_AMD64 = "--architectures=amd64"
#: Part of the recipe's digest. The options of dpkg and apt stay in the image, so they also apply to
#: packages that are installed later.
MMDEBSTRAP_OPTIONS = (
    "--variant=apt",
    "--mode=auto",
    "--format=tar",
    _FOR_AMD64,
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/lintian/*",
    # Headers for compiling Perl extensions. Perl is installed only because git requires it.
    "--dpkgopt=path-exclude=/usr/lib/*/perl/*/CORE/*.h",
    # Skip translated package descriptions, a third of what `apt-get update` downloads.
    '--aptopt=Acquire::Languages "none"',
    # Device nodes differ between runs with and without root.
    "--skip=output/dev",
    "--skip=chroot/policy-rc.d",
    # mmdebstrap copies these two files from the machine that it runs on.
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
    f"--customize-hook={_POLICY}",
)
#: The folder in which mmdebstrap(1) and apt look for the keys of archives.
_KEYS = Path("/usr/share/keyrings")
#: The keyring of each distribution's archive, and the package that installs the keyring.
KEYRINGS = {
    "debian": (_KEYS / "debian-archive-keyring.gpg", "debian-archive-keyring"),
    "ubuntu": (_KEYS / "ubuntu-archive-keyring.gpg", "ubuntu-keyring"),
}


def base_recipe(image: Image, settings: Settings) -> dict[str, str | int]:
    """Return everything that determines the base image of an image, except the archive's content.

    ``epoch`` is SOURCE_DATE_EPOCH, in seconds. No file of the base is newer. If the settings have a
    snapshot, ``snapshot`` is its time, and the base is made from the archive of that time. Only
    recipes for another architecture than amd64 have ``architecture``.
    """
    recipe: dict[str, str | int] = {
        "os_name": image.os_name,
        "distribution": image.os.distribution,
        "suite": image.os.suite,
        "epoch": epoch_seconds(image),
    }
    if image.architecture != "amd64":
        recipe["architecture"] = image.architecture
    mirror = settings.mirrors.get(image.os.distribution)
    return {**recipe, "snapshot": mirror.snapshot} if mirror and mirror.snapshot else recipe


def recipe_digest(recipe: Mapping[str, str | int]) -> str:
    """Return the sha256, in hexadecimal, of a recipe, `RECIPE_VERSION` and mmdebstrap's options."""
    parts = [RECIPE_VERSION, dict(recipe), MMDEBSTRAP_OPTIONS]
    return sha256(json.dumps(parts, sort_keys=True).encode())


def base_folder(image: Image, settings: Settings) -> Path:
    """Return the folder in the cache for the base image of an image."""
    digest = recipe_digest(base_recipe(image, settings))
    return cache_dir() / "base" / f"{image.base_name}-{digest[:12]}"


def bootstrap_base(
    image: Image,
    settings: Settings,
    *,
    refresh: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> Base:
    """Return the base of an image from the cache, or make it with mmdebstrap (20 to 40 s).

    The same recipe gives the same base until the archive changes. ``refresh`` makes the base again
    from the current archive. A base in the cache is reused only if its digests are correct.

    MachineError: a tool or keyring is missing, the archive is too slow or cannot be reached, or the
        disk is full.
    """
    final, name = base_folder(image, settings), image.base_name

    def make(folder: Path) -> None:
        _require_packages(image.os.distribution)
        is_own = platform.machine() == image.machine
        if not is_own:
            _require_emulation(image)
        damaged = final.exists() and not refresh
        why = "the base image in the cache is damaged; " if damaged else ""
        time_needed = "about half a minute" if is_own else "minutes: its processor is emulated"
        log(f"{why}making the base image {name} ({time_needed})")
        with _scratch_folder(f"{name}-{sha256(bytes(final.resolve()))[:12]}") as scratch:
            rootfs = _run_mmdebstrap(image, settings, scratch)
            oci_layout.write_layout(
                folder,
                rootfs,
                name=name,
                epoch=epoch_seconds(image),
                architecture=image.architecture,
            )

    wait = partial(log, f"another imgbuild is making {name}; waiting for it")
    ensure_folder(final, make, oci_layout.is_whole, refresh=refresh, on_wait=wait)
    return oci_layout.read_layout(final, verify_layer=False, origin=BOOTSTRAPPED)


def find_bootstrapped(image: Image, settings: Settings) -> Base | None:
    """Return the base of an image from the cache, or None; the layer is not verified."""
    folder = base_folder(image, settings)
    with suppress(InputError):
        return oci_layout.read_layout(folder, verify_layer=False, origin=BOOTSTRAPPED)
    return None


def _require_packages(distribution: str) -> None:
    """Raise MachineError if a package for making the distribution's base image is missing."""
    if missing := missing_packages(distribution):
        raise MachineError(
            f"mmdebstrap makes the base image of {distribution} from the distribution's archive, "
            f"but this machine lacks: {', '.join(missing)}. Install with "
            f"`sudo apt-get install -y {' '.join(missing)}`, or use a base image from a "
            "registry (imgbuild.local.yaml, base: from: registry)."
        )


def _require_emulation(image: Image) -> None:
    """Raise MachineError if this machine cannot run programs for the image's architecture."""
    if run(["arch-test", image.architecture]).ok:
        return
    raise MachineError(
        f"The base image {image.base_name} is made by running its own programs, and this machine "
        f"runs none for {image.architecture}. Install an emulator with `sudo apt-get install -y "
        f"{' '.join(EMULATOR)}`, or use a base image from a registry."
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
    # Trust only the archive's own keys. Otherwise mmdebstrap would accept all keys that apt trusts
    # on this machine, and these would also change the sources that it writes into the image.
    trust = [f"--keyring={KEYRINGS[image.os.distribution][0]}", f"--keyring={no_keys}"]
    suite, source = image.os.suite, image.os.suite
    hooks = [*IDLE_HOOKS]
    mirror = settings.mirrors.get(image.os.distribution)
    if mirror and mirror.snapshot:
        hooks += _snapshot_hooks(mirror.url.rstrip("/"), mirror.snapshot)
        source = f"{suite} as of {mirror.snapshot}"
    own = f"--architectures={image.architecture}"
    usual = [own if option == _FOR_AMD64 else option for option in MMDEBSTRAP_OPTIONS]
    options = [*usual, *hooks, *trust, suite, str(target)]
    epoch = epoch_seconds(image)
    environment = {
        "SOURCE_DATE_EPOCH": str(epoch),
        "TMPDIR": str(scratch),
        "LC_ALL": "C.UTF-8",
        "PATH": f"{_SYSTEM_PROGRAMS}:{os.environ.get('PATH', '')}",
    }
    log_path = state_dir() / "logs" / f"{time.strftime('%Y%m%dT%H%M%S')}-inputs.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [*_isolate_mounts(), find_program("mmdebstrap") or "mmdebstrap", *options]
    with (
        log_path.open("w", encoding="utf-8") as out,
        start(command, env={**os.environ, **environment}, output=out) as process,
    ):
        try:
            status = process.wait(_LONGEST_SECONDS)
        except TimeoutExpired:
            raise MachineError(
                f"Making the base of {suite} took more than {_LONGEST_SECONDS // 60} minutes. "
                "The archive is too slow or no longer answers. Use a mirror (docs/mirrors.md). "
                f"The whole log is {log_path}."
            ) from None
    if status or not target.is_file():
        last = log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        said = [line for line in last if line.startswith("E:")] or last
        raise MachineError(
            f"mmdebstrap could not make the base of {source}. It ended with status {status} and "
            f"this output: {' | '.join(said) or 'nothing'}. The whole log is {log_path}. Check "
            f"that this machine can reach the archive and that {scratch.parent} has 1 GB free "
            f"(`df -h {scratch.parent}`; set TMPDIR to use another folder), then run the command "
            "again."
        )
    _add_dev(target, epoch)
    return target


def _add_dev(rootfs: Path, epoch: int) -> None:
    """Add an empty /dev.

    Without it, an engine creates the folder in a layer of the image, with the current time.
    """
    folder = tarfile.TarInfo("./dev")
    folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, epoch
    with tarfile.open(rootfs, "a") as archive:
        archive.addfile(folder)


def _snapshot_hooks(service: str, snapshot: str) -> list[str]:
    """Return options that install from the snapshot, and then restore the image's usual sources."""
    dated = rf"deb [check-valid-until=no] {service}/archive/debian\1/{snapshot} "
    edit = f"s#^deb https?://[^ ]*/debian(-security)?/? #{dated}#"
    return [
        f'--setup-hook=cd "$1/etc/apt" && sed -i.usual -E "{edit}" sources.list',
        '--customize-hook=cd "$1/etc/apt" && mv sources.list.usual sources.list',
    ]


def _isolate_mounts() -> list[str]:
    """Return a command that runs mmdebstrap in its own mount namespace, or an empty list.

    As root, mmdebstrap mounts /proc, /sys and parts of /dev into its chroot. The whole machine sees
    these mounts, and a killed run leaves them behind. In a namespace, they disappear with the last
    process. In a container, root may not be allowed to create a namespace, but then it cannot mount
    anything. Without root, mmdebstrap creates its own namespace.
    """
    command = ["unshare", "--mount", "--"]
    return command if os.geteuid() == 0 and run([*command, "true"]).ok else []


@contextmanager
def _scratch_folder(name: str) -> Iterator[Path]:
    """Yield an empty folder for mmdebstrap to work in, and remove it afterwards.

    ``name`` identifies the recipe and the cache. The caller holds the lock of this base, so any
    folder with this name is left over. A process with another cache uses another name.
    """
    prefix, parent = f"imgbuild-{os.getuid()}-{name}-", _scratch_parent()
    for leftover in parent.glob(f"{prefix}*"):  # from a killed run
        if leftover.lstat().st_uid == os.getuid():
            remove_tree(leftover)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        folder.chmod(0o755)  # without root, mmdebstrap works here with a subordinate user id
        yield folder
    finally:
        remove_tree(folder)


def _scratch_parent() -> Path:
    """Return a folder in memory, because dpkg writes and syncs thousands of small files.

    If TMPDIR is set, or if the folder in memory is full, not writable or does not allow programs to
    run, return the folder for temporary files.
    """
    if "TMPDIR" not in os.environ and os.access(_SHARED_MEMORY, os.W_OK):
        status = os.statvfs(_SHARED_MEMORY)
        if status.f_bavail * status.f_frsize >= _ROOM and not status.f_flag & os.ST_NOEXEC:
            return _SHARED_MEMORY
    return Path(tempfile.gettempdir())
