"""Whose rights the files of an image give away: to everybody, or with a setuid bit."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from image_files import File

#: What Debian 12, Ubuntu 16.04 and 18.04 bring, read from their base images: of passwd, login,
#: util-linux, bsdutils and PAM; and of openssh-client. Only /bin and /sbin differ between them.
SETUID = re.compile(
    r"(/usr)?/s?bin/(chage|chfn|chsh|expiry|gpasswd|newgrp|passwd|su|mount|umount|wall"
    r"|unix_chkpwd|pam_extrausers_chkpwd|ssh-agent)"
    r"|/usr/lib/openssh/ssh-keysign"
)


def world_writable(files: Iterable[File]) -> list[str]:
    """Return what anybody may change: not links, whose mode means nothing, nor sticky folders."""
    return sorted(
        f"{file.path} ({file.mode:o})"
        for file in files
        if file.kind != "l" and file.mode & stat.S_IWOTH and not _sticky(file)
    )


def setuid(files: Iterable[File]) -> list[str]:
    """Return programs that run with another's rights, but those that the system needs."""
    return sorted(
        f"{file.path} ({file.mode:o})"
        for file in files
        if file.kind == "f"
        and file.mode & (stat.S_ISUID | stat.S_ISGID)
        and not SETUID.fullmatch(file.path)
    )


def _sticky(file: File) -> bool:
    return file.kind == "d" and bool(file.mode & stat.S_ISVTX)
