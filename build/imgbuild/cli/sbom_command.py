"""``imgbuild sbom``: print the SBOM of an image."""

from pathlib import Path

from imgbuild.cli.options import (
    PROJECT,
    echo,
    engine_images,
    load_matrix,
    option,
    pull_missing,
    takes_selection,
)
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.matrix.selection import Selection


@takes_selection(without="everything")
def sbom(
    selection: Selection,
    output: Path | None = option("--output FILE", "Write the SBOM to this file."),
    checkout: Project = PROJECT,
) -> None:
    """Print the software bill of materials (SBOM) of an image.

    The format is CycloneDX 1.6. IMAGE can be any image: from the list, the engine or a registry.
    The command reads the contents of the running image. The same image always has the same SBOM.

    Example: imgbuild sbom 2.2 --output sbom.json
    """
    from imgbuild.core.files import write_text
    from imgbuild.engine.client import open_engine
    from imgbuild.matrix.selection import build_hint
    from imgbuild.publish.sbom import make_locked_sbom

    (reference, planned), *others = engine_images(checkout, selection)
    if others:
        raise InputError(f"`sbom` takes one image, but {len(others) + 1} are selected.")
    name = planned.name if planned else reference
    with open_engine(checkout.settings.engine) as engine:
        if planned is None:
            pull_missing(engine, reference, checkout.settings)
        stored, matrix = engine.need(reference, build_hint(planned)), load_matrix(checkout)
        text = make_locked_sbom(name, stored, engine, checkout, matrix)
    if output:
        write_text(output, text)
    else:
        echo(text.rstrip())
