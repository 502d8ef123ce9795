"""``imgbuild show``: every pin of an image: value, source and reason; and the GPUs it serves."""

import json

import typer

from imgbuild.cli import options
from imgbuild.cli.selecting import Chosen, selecting


@selecting
def show(
    chosen: Chosen,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Show every pin of an image (value, source, reason), and which GPUs it serves."""
    from imgbuild.cli.show_data import described
    from imgbuild.cli.show_text import image_text

    opened = options.open_project(project)
    images = chosen.images(opened)
    shown = [described(image, opened.locks) for image in images]
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
        return
    typer.echo("\n\n".join(image_text(image) for image in shown))
