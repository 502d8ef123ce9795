"""``imgbuild release``: list, retire and delete published images."""

import typer

from imgbuild.cli.release_list_command import list_releases
from imgbuild.cli.release_prune_command import prune_releases
from imgbuild.cli.release_retire_command import retire_images

release = typer.Typer(
    help="List, retire or delete published images.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
release.command("list")(list_releases)
release.command("retire")(retire_images)
release.command("prune")(prune_releases)
