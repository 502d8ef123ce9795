"""Copy the in-image programs into a container, and take them away again.

The archive travels as an argument of the command, so that it works on every testinfra backend
(docker, podman, kubectl): none of them can feed a command's standard input.
"""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from limits import Patience

if TYPE_CHECKING:
    from container import CommandResult, Host

PROGRAMS = Path(__file__).parent / "programs"
#: The program with the factor of all waits.
PATIENCE = "patience.py"
#: Linux allows 128 KiB for one argument (MAX_ARG_STRLEN). The shells' own words need some of it;
#: base64 needs no quoting.
LONGEST_ARCHIVE = 120 * 1024


def copy_programs(host: Host) -> str:
    """Return the fresh folder in the container that now holds the programs."""
    archive = packed(PROGRAMS)
    if len(archive) > LONGEST_ARCHIVE:
        pytest.fail(f"{PROGRAMS}: too large to travel as an argument", pytrace=False)
    folder = _checked(host.run("mktemp -d /tmp/imgbuild-suite.XXXXXX")).strip()
    _checked(host.run("echo %s | base64 -d | tar -xz -C %s", archive, folder))
    return folder


def remove_programs(host: Host, folder: str) -> None:
    """Remove what `copy_programs` put into the container."""
    _checked(host.run("rm -rf %s", folder))


def packed(folder: Path) -> str:
    """Return the Python files of `folder` as a base64 text of a compressed tar.

    Where the processor is emulated, the programs are told how long they may wait.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in sorted(folder.glob("*.py")):
            if file.name == PATIENCE and Patience.factor != 1:
                text = file.read_text("utf-8").replace("= 1\n", f"= {Patience.factor}\n")
                member = tarfile.TarInfo(PATIENCE)
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
            else:
                archive.add(file, arcname=file.name)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _checked(result: CommandResult) -> str:
    """Return the standard output of a command that must have worked."""
    if result.rc != 0:
        pytest.fail(f"cannot use the container: {result.stderr.strip()}", pytrace=False)
    return result.stdout
