"""Make a root file system by mmdebstrap, from the distribution's archive."""

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from imgbuild.errors import InputError, MachineError
from imgbuild.files import remove_tree
from imgbuild.process import run, start

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (only used through mkdtemp)
_ROOM = 1 << 30  # bytes; a run was seen to need 0.3 GB at its widest
_LAST_LINES = 20

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
    # The engine makes /dev; device nodes differ between runs with and without root.
    "--skip=output/dev",
    "--skip=chroot/policy-rc.d",
    # mmdebstrap copies these two in from the machine it runs on.
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
    f"--customize-hook={_POLICY}",
)


@dataclass(frozen=True)
class _Keyring:
    path: Path
    package: str


#: Where mmdebstrap(1) and apt look for the keys of an archive, and the package that brings them.
KEYRINGS = {
    "debian": _Keyring(
        Path("/usr/share/keyrings/debian-archive-keyring.gpg"), "debian-archive-keyring"
    ),
    "ubuntu": _Keyring(Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"), "ubuntu-keyring"),
}


def require_tools(distribution: str) -> Path:
    """Return the archive's keyring, after seeing that mmdebstrap can run here at all.

    Raises:
        InputError: ``distribution`` is not one that can be bootstrapped.
        MachineError: a package is missing; with the command that installs it.

    """
    keyring = KEYRINGS.get(distribution)
    if keyring is None:
        known = ", ".join(sorted(KEYRINGS))
        raise InputError(
            f"The distribution {distribution!r} cannot be bootstrapped; known: {known}. Take its "
            "base image from a registry instead (imgbuild.local.yaml, base: from: registry)."
        )
    missing = [] if keyring.path.is_file() else [keyring.package]
    missing += [] if shutil.which("mmdebstrap") else ["mmdebstrap"]
    missing += [] if os.geteuid() == 0 or shutil.which("newuidmap") else ["uidmap"]
    if missing:
        raise MachineError(
            f"A base image of {distribution} is made by mmdebstrap from the distribution's "
            f"archive, and this machine lacks: {', '.join(missing)}. Install with `sudo apt-get "
            f"install -y {' '.join(missing)}`, or take the base image from a registry "
            "(imgbuild.local.yaml, base: from: registry)."
        )
    return keyring.path


def run_mmdebstrap(suite: str, *, keyring: Path, epoch: int, scratch: Path, log: Path) -> Path:
    """Return the tar of a fresh root file system of ``suite``, in ``scratch``.

    ``log`` gets every line of mmdebstrap; it is written anew.

    Raises:
        MachineError: mmdebstrap failed; with its last lines.

    """
    target, no_keys = scratch / "rootfs.tar", scratch / "no-keys"
    no_keys.mkdir()
    # Only the archive's own keys count, not what else this machine's apt trusts; and the sources
    # written into the image do not depend on what it trusts.
    trust = [f"--keyring={keyring}", f"--keyring={no_keys}"]
    command = [*_own_mounts(), "mmdebstrap", *MMDEBSTRAP_OPTIONS, *trust, suite, str(target)]
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(epoch),
        "TMPDIR": str(scratch),
        "LC_ALL": "C.UTF-8",
    }
    status, last = _run_logged(command, environment, log)
    if status or not target.is_file():
        said = [line for line in last if line.startswith("E:")] or last
        raise MachineError(
            f"The base of {suite} could not be made: mmdebstrap ended with status {status}, "
            f"saying: {' | '.join(said) or 'nothing'}. The whole log is {log}. Check that "
            f"the archive can be reached from here and that {scratch.parent} has 1 GB "
            f"free (`df -h {scratch.parent}`; set TMPDIR to work elsewhere), and run this again."
        )
    return target


def _run_logged(
    command: list[str], environment: dict[str, str], log: Path
) -> tuple[int, list[str]]:
    """Return the exit code and the last lines of a program."""
    last: deque[str] = deque(maxlen=_LAST_LINES)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as out, start(command, env=environment) as process:
        for line in process.stdout or ():
            out.write(line)
            out.flush()
            last.append(line.rstrip())
        return process.wait(), [*last]


def _own_mounts() -> list[str]:
    """Return the command that gives a run by root its own mount namespace, if that is allowed.

    As root, mmdebstrap mounts /proc, /sys and parts of /dev into its chroot where the whole machine
    sees them, and a killed run cannot take them away. In a namespace they go with its last process.
    A root that may not make one (in a container) may not mount either; without root, mmdebstrap
    makes its own.
    """
    command = ["unshare", "--mount", "--"]
    if os.geteuid() or not shutil.which("unshare"):
        return []
    return command if run([*command, "true"]).ok else []


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Yield an empty folder for mmdebstrap to work in; it is gone afterwards.

    In memory where there is room, since dpkg writes and syncs thousands of small files; a TMPDIR
    the user has set wins. Folders of the same ``name`` left by a killed run are removed first, so
    the caller holds the lock of that name.
    """
    prefix = f"imgbuild-{os.getuid()}-{name}-"
    parent = _scratch_parent()
    for leftover in parent.glob(f"{prefix}*"):
        if leftover.lstat().st_uid == os.getuid():
            remove_tree(leftover)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        folder.chmod(0o755)  # without root, mmdebstrap works here under a subordinate id
        yield folder
    finally:
        remove_tree(folder)


def _scratch_parent() -> Path:
    if "TMPDIR" not in os.environ and _has_room(_SHARED_MEMORY):
        return _SHARED_MEMORY
    return Path(tempfile.gettempdir())


def _has_room(folder: Path) -> bool:
    """Whether ``folder`` can be written, programs may run from it, and disk and memory suffice."""
    if not os.access(folder, os.W_OK):
        return False
    status = os.statvfs(folder)
    free = min(status.f_bavail * status.f_frsize, _available_memory())
    return free >= _ROOM and not status.f_flag & os.ST_NOEXEC


def _available_memory() -> int:
    """Return the bytes the kernel can give without swapping (``MemAvailable``, proc(5))."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
