"""``imgbuild retire``: say of published images that nobody should use them any more."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import typer

from imgbuild.cli import options
from imgbuild.cli.options import info, option
from imgbuild.errors import InputError


def retire(
    tags: list[str] = typer.Argument(metavar="TAG...", help="Published tags of the images."),
    reason: str = option("--reason TEXT", "Why, in one line, for those who use them.", default=...),
    source: str | None = options.repository("--from", "The repository."),
    project: Path | None = options.PROJECT,
) -> None:
    """Mark published images as retired; nothing is deleted.

    No tag moves. `imgbuild published` shows the day and the reason, and the record in the registry
    has an annotation for other tools.
    """
    from imgbuild.publish import life_cycle
    from imgbuild.registry.repository_client import connect
    from imgbuild.settings import load_settings

    if len(reason) > 200 or not reason.isprintable():
        raise InputError("--reason: one line of at most 200 characters.")
    settings = load_settings(options.open_project(project).settings)
    with closing(connect(source, settings, info, "--from")) as registry:
        for tag in life_cycle.retire(registry, tags, reason, datetime.now(UTC).date()):
            info(f"{registry.name}:{tag} is retired.")
