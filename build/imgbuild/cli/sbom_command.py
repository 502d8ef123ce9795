"""``imgbuild sbom``: what is in an image, in a format that other tools read."""

from pathlib import Path

from imgbuild.cli import options
from imgbuild.cli.options import echo, option, select, takes_selection
from imgbuild.errors import InputError
from imgbuild.matrix.selection import Selection


@takes_selection(without="everything")
def sbom(
    selection: Selection,
    image: str | None = option("--image IMAGE", "This image of the engine, by name or id."),
    output: Path | None = option("--output FILE", "Write it into this file."),
    project: Path | None = options.PROJECT,
) -> None:
    """Print the bill of materials (SBOM) of an image as CycloneDX 1.6.

    It is read from the running image, which must be in the engine. The same image has the same one.
    """
    from imgbuild.engine.client import open_engine
    from imgbuild.files import write_text
    from imgbuild.matrix.images import standin_image
    from imgbuild.matrix.load import load_matrix
    from imgbuild.settings import load_settings
    from imgbuild.trust.sbom import locked_sbom

    if image and selection != Selection():
        raise InputError("--image cannot be combined with the selection options.")
    checkout = options.open_project(project)
    settings, planned = load_settings(checkout.settings), None
    name = reference = str(image)
    if not image:
        planned, *others = select(checkout, selection)
        if others:
            raise InputError(f"An SBOM is of one image; {len(others) + 1} are selected.")
        planned = standin_image(planned) if settings.standin else planned
        name, reference = planned.name, planned.tags[0]
    with open_engine(settings.engine) as engine:
        stored, matrix = engine.need(reference, planned), load_matrix(checkout.matrix)
        text = locked_sbom(name, stored, engine, checkout, matrix)
    if output:
        write_text(output, text)
    else:
        echo(text.rstrip())
