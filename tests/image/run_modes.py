"""The ways in which containers of an image are run, as options of `docker run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


#: For `--security-opt seccomp`: no process may read another's memory, as on many clusters. Open MPI
#: then says "Read -1, expected …", unless it was told not to try (open-mpi/ompi#4948).
NO_CROSS_MEMORY = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["process_vm_readv", "process_vm_writev"], "action": "SCMP_ACT_ERRNO"}],
}
#: A user of the image, those that no file of the image knows, and root.
USERS = {
    "root": "0:0",
    "mpiuser": "mpiuser",
    "unknown": "12345:12345",
    "unknown-in-group-0": "12345:0",
}
#: What Intel MPI's mpirun says of each user without a name, and then goes on (its `whoami`).
NAMELESS = "whoami: cannot find name for user ID 12345"
#: Variables that a shell sets for itself.
OF_SHELLS = {"_", "SHLVL", "PWD", "OLDPWD"}


def hardened(user: str, profile: Path) -> list[str]:
    """Return options for a read-only image, a user, and the engine's 64 MB of shared memory.

    `profile` is a file with NO_CROSS_MEMORY as JSON.
    """
    options = ["--read-only", "--tmpfs=/tmp", f"--user={USERS[user]}"]
    return [*options, f"--security-opt=seccomp={profile}"]


def complaints(text: str, *, named: bool) -> list[str]:
    """Return the lines of standard error that are none of a launcher's known words."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and (named or line != NAMELESS)]


def differing(ours: dict[str, str], theirs: dict[str, str]) -> list[tuple[str, str]]:
    """Return the variables that differ, as both have them."""
    names = sorted((ours.keys() | theirs.keys()) - OF_SHELLS)
    return [
        (f"{name}={ours.get(name)}", f"{name}={theirs.get(name)}")
        for name in names
        if ours.get(name) != theirs.get(name)
    ]
