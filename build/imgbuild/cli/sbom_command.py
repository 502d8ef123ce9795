"""``imgbuild sbom``: what is in an image, in a format that other tools read."""

from pathlib import Path

from imgbuild.cli.options import PROJECT, echo, engine_images, option, takes_selection
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.matrix.selection import Selection


@takes_selection(without="everything")
def sbom(
    selection: Selection,
    image: str | None = option("--image IMAGE", "This image of the engine, by name or id."),
    output: Path | None = option("--output FILE", "Write it into this file."),
    checkout: Project = PROJECT,
) -> None:
    """Print the bill of materials (SBOM) of an image as CycloneDX 1.6.

    It is read from the running image, which must be in the engine. The same image has the same one.
    """
    from imgbuild.core.files import write_text
    from imgbuild.engine.client import open_engine
    from imgbuild.matrix.load import load_matrix
    from imgbuild.matrix.selection import build_hint
    from imgbuild.publish.sbom import make_locked_sbom

    (reference, planned), *others = engine_images(checkout, selection, [image] if image else [])
    if others:
        raise InputError(f"An SBOM is of one image; {len(others) + 1} are selected.")
    name = planned.name if planned else reference
    with open_engine(checkout.settings.engine) as engine:
        stored, matrix = engine.need(reference, build_hint(planned)), load_matrix(checkout.matrix)
        text = make_locked_sbom(name, stored, engine, checkout, matrix)
    if output:
        write_text(output, text)
    else:
        echo(text.rstrip())
