"""Commands, options and variables that imgbuild no longer has; errors name the replacements."""

import os
from collections.abc import Iterable

from imgbuild.core.errors import InputError

#: What replaces a command.
REMOVED_COMMANDS = {
    "fetch": "imgbuild build --fetch DIR",
    "pick": "imgbuild list",
    "prune": "imgbuild release prune",
    "published": "imgbuild release list",
    "reproduce": "imgbuild verify --rebuild",
    "retire": "imgbuild release retire",
    "size": "imgbuild show --layers",
}
#: The replacement, by the option, which no other command has, or by command and option.
REMOVED_OPTIONS = {
    "--allow-cached": "Push only what this machine built or what `verify` of the settings trusts: "
    "run `docker rmi --force IMAGE`, then `imgbuild build`.",
    "--as-documented": "Images are built with the corrected pins only; `imgbuild show IMAGE` lists "
    "the documented ones, and why they cannot work.",
    "--cache": "`release prune` always deletes the tags that no release needs.",
    "--cache-from": "Use `--pull` for published images, or `--buildkit-cache` for build steps. "
    "Horovod's wheels stay in the cache of this machine.",
    "--cache-to": "Use `imgbuild push` for images, or `--buildkit-cache` for build steps. "
    "Horovod's wheels stay in the cache of this machine.",
    "--changed-since": "`imgbuild matrix --missing` lists the images that are not published with "
    "their inputs, and `imgbuild build --all --dry-run` says what a change rebuilds, and why.",
    "--base": "Name the image as the first word: `imgbuild extend IMAGE`.",
    "--expect": "`imgbuild test IMAGE` expects the image of the matrix that the label of IMAGE "
    "names, or that --tf and the other selection options select.",
    "--image": "Name the image as a word of its own: `imgbuild test IMAGE`.",
    "--name": "Name the image as a word of its own: `imgbuild build IMAGE`.",
    "--plan": "Use --dry-run.",
    "--refresh-base": "Use --refresh.",
    "--remove": "Use --yes.",
    "--rerun": "Use --refresh.",
    "lock --all": "Use --refresh.",
    "--log-format": "Standard error is always text; --json prints the results as JSON.",
}
#: The same by the environment variable.
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
