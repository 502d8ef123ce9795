"""``imgbuild show``: every pin of an image: value, source and reason; and the GPUs it serves."""

import json

import typer

from imgbuild.cli import options


def show(
    tf: options.TfOption = None,
    cpu: options.CpuOption = False,
    gpu: options.GpuOption = False,
    stack: options.StackOption = None,
    mpi: options.MpiOption = None,
    everything: options.AllOption = False,
    as_documented: options.AsDocumentedOption = False,
    name: options.NameOption = None,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """Show every pin of an image (value, source, reason), and which GPUs it serves."""
    from imgbuild.cli.show_data import described
    from imgbuild.cli.show_text import image_text

    opened = options.open_project(project)
    images = options.select(opened, tf, cpu, gpu, stack, mpi, everything, as_documented, names=name)
    shown = [described(image, opened.locks) for image in images]
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
        return
    typer.echo("\n\n".join(image_text(image) for image in shown))
