"""Refuse removed commands, options and variables, and name their replacements."""

import os
from collections.abc import Iterable

from imgbuild.core.errors import InputError

#: The replacement of each removed command.
REMOVED_COMMANDS = {
    "fetch": "imgbuild build --fetch DIR",
    "pick": "imgbuild list",
    "prune": "imgbuild release prune",
    "published": "imgbuild release list",
    "reproduce": "imgbuild verify --rebuild",
    "retire": "imgbuild release retire",
    "size": "imgbuild show --layers",
}
#: The replacement of each removed option. A key that begins with a command is for this command
#: only, because other commands still have the option.
REMOVED_OPTIONS = {
    "--allow-cached": "`imgbuild push` accepts only images that this machine built or that "
    "`verify` in the settings trusts. Build the image again: run `docker rmi --force IMAGE`, then "
    "`imgbuild build`.",
    "--as-documented": "Images are built with the corrected pins only. `imgbuild show IMAGE` lists "
    "the documented pins, and why they cannot work.",
    "--cache": "Omit it: `release prune` always deletes the tags that no release needs.",
    "--cache-from": "Use `--pull` for published images, or `--buildkit-cache` for build steps. "
    "Horovod's wheels stay in the cache of this machine.",
    "--cache-to": "Use `imgbuild push` for images, or `--buildkit-cache` for build steps. "
    "Horovod's wheels stay in the cache of this machine.",
    "--changed-since": "Use `imgbuild matrix --missing` for images that are not published with "
    "their inputs, or `imgbuild build --all --dry-run` for images to rebuild, and why.",
    "--base": "Give the image as the first argument: `imgbuild extend IMAGE`.",
    "--expect": "`imgbuild test IMAGE` compares IMAGE with the image of the matrix that its label "
    "names, or that --tf and the other selection options select.",
    "--image": "Give the image as an argument: `imgbuild test IMAGE`.",
    "--name": "Give the image as an argument: `imgbuild build IMAGE`.",
    "build --plan": "Use --dry-run.",
    "push --plan": "Use --dry-run.",
    "--refresh-base": "Use --refresh.",
    "--remove": "Use --yes.",
    "--rerun": "Use --refresh.",
    "add --tf": "Give the release as an argument: `imgbuild add 2.3.4`.",
    "lock --all": "Use --refresh.",
    "--log-format": "Standard error is always text; --json prints the results as JSON.",
}
#: The replacement of each removed environment variable.
REMOVED_VARIABLES = {
    "IMGBUILD_LOG_FORMAT": "Unset it: standard error is always text; --json prints the results as "
    "JSON.",
}


def refuse_removed_command(name: str) -> None:
    """Raise InputError if a command was removed."""
    if name in REMOVED_COMMANDS:
        raise InputError(f"`imgbuild {name}` was removed. Use `{REMOVED_COMMANDS[name]}`.")


def refuse_removed_options(words: Iterable[str]) -> None:
    """Raise InputError if a command line has a removed option."""
    words = [*words]
    for word in words:
        option = word.partition("=")[0]
        if f"{words[0]} {option}" in REMOVED_OPTIONS:
            option = f"{words[0]} {option}"
        if option in REMOVED_OPTIONS:
            raise InputError(f"{option} was removed. {REMOVED_OPTIONS[option]}")


def refuse_removed_variables() -> None:
    """Raise InputError if the environment has a removed variable."""
    for variable, replacement in REMOVED_VARIABLES.items():
        if os.environ.get(variable):
            raise InputError(f"The variable {variable} was removed. {replacement}")
