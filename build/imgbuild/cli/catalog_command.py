"""``imgbuild catalog``: write the catalog page, or the table of images in the README."""

from pathlib import Path

from imgbuild.cli.options import PROJECT, echo, info, option
from imgbuild.cli.options import repository as repository_option
from imgbuild.core.project import Project
from imgbuild.core.text import count_text


def catalog(
    output: Path = option("--output DIR", "Folder for index.html.", default=Path("catalog")),
    published: str | None = repository_option("--published", "Repository of the published images."),
    readme: Path | None = option(
        "--readme FILE", "Write only the table of images, between the markers in FILE."
    ),
    checkout: Project = PROJECT,
) -> None:
    """Write an HTML page with all facts about the images.

    The page helps users to choose an image. It is a single file, index.html, which needs no
    network. Facts about images built on this machine come from the engine, facts about published
    images from the repository. If the documentation is in the same folder, as `make site` writes
    it, the page links to it.

    Example: imgbuild catalog
    """
    from imgbuild.catalog.entries import read_catalog
    from imgbuild.catalog.page import catalog_page, images_table, page_file, with_images_table
    from imgbuild.cli.image_layers import instruction
    from imgbuild.cli.show_command import read_image_facts
    from imgbuild.core.files import write_text
    from imgbuild.matrix.images import all_images
    from imgbuild.matrix.load import load_matrix

    matrix = load_matrix(checkout.matrix)
    if readme:
        write_text(readme, with_images_table(readme, images_table(matrix)))
        return
    page = page_file(output)
    facts = [(image, read_image_facts(image, checkout.locks)) for image in all_images(matrix)]
    entries, repository, has_engine = read_catalog(checkout, facts, published, info)
    text = catalog_page(
        entries,
        instruction,
        repository=repository,
        has_engine=has_engine,
        documented=(output / "docs" / "index.html").is_file(),
    )
    write_text(page, text)
    known = sum(not entry.absence for entry in entries)
    images = count_text(len(entries), "image")
    echo(f"{page}: {images}, {known} of them published or built here.")
