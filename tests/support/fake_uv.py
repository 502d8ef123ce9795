"""A shell script in uv's place, which builds no package by its own account."""

from pathlib import Path
from typing import NoReturn

from imgbuild.core.sources import Source
from imgbuild.locks.lockfile import Lock
from imgbuild.locks.resolver import Target

#: As uv prints it with ``--only-binary :all:``.
SETTINGS = "build_options: BuildOptions { no_binary: None, no_build: All, }"


def write_fake_uv(path: Path, script: str) -> Path:
    """Write a program that runs ``script`` where uv would resolve."""
    settings = f'case "$*" in *--show-settings*) echo "{SETTINGS}"; exit;; esac'
    path.write_text(f"#!/bin/sh\n{settings}\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def no_metadata(name: str, _: str, __: Source, ___: Target) -> NoReturn:
    """Fail a test in which no metadata of a source distribution is needed."""
    raise AssertionError(f"{name} needs no metadata")


def no_requirements(_: Lock, __: str, ___: Target) -> dict[str, tuple[str, ...]]:
    """Return that no package of a lock requires another."""
    return {}
