"""One run of mmdebstrap: what it needs, what it is asked for, what it says when it fails."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from imgbuild.errors import InputError, MachineError
from imgbuild.inputs.process_group import Listener, run_group

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


def run_mmdebstrap(
    suite: str, *, keyring: Path, epoch: int, scratch: Path, listener: Listener
) -> Path:
    """Return the tar of a fresh root file system of ``suite``, in ``scratch``.

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
    status, last = run_group(command, environment, listener)
    if status or not target.is_file():
        said = [line for line in last if line.startswith("E:")] or last
        raise MachineError(
            f"The base of {suite} could not be made: mmdebstrap ended with status {status}, "
            f"saying: {' | '.join(said) or 'nothing'}. The whole log is {listener.log}. See that "
            f"the archive can be reached from here and that {scratch.parent} has 1 GB "
            f"free (`df -h {scratch.parent}`; set TMPDIR to work elsewhere), and run this again."
        )
    return target


def _own_mounts() -> list[str]:
    """Return the command that gives a run by root a mount namespace of its own, if it may have one.

    As root, mmdebstrap mounts /proc, /sys and parts of /dev into its chroot where the whole machine
    sees them, and a killed run cannot take them away. In a namespace they go with its last process.
    A root that may not make one (in a container) may not mount either; without root, mmdebstrap
    makes its own.
    """
    command = ["unshare", "--mount", "--"]
    if os.geteuid() or not shutil.which("unshare"):
        return []
    probe = subprocess.run([*command, "true"], capture_output=True, check=False)
    return [] if probe.returncode else command
