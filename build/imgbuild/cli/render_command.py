"""``imgbuild render``: write the files generated from the matrix, or check them."""

from imgbuild.cli.options import PROJECT, echo, flag, require_own
from imgbuild.core.errors import CheckFailedError
from imgbuild.core.project import Project


def render(
    check: bool = flag("--check", "Write nothing; exit 1 if a file is not up to date."),
    checkout: Project = PROJECT,
) -> None:
    """Write the files that are generated from the matrix.

    These are the Dockerfiles with their pip constraints, the layers of the locks, the schema of the
    matrix, the tables of images in pages, and the rules that images check requirements with.

    Example: imgbuild render --check
    """
    from imgbuild.catalog.page import readme_texts
    from imgbuild.dockerfile.render import find_drift, render_all, render_rules, write_all
    from imgbuild.matrix.images import all_images
    from imgbuild.matrix.load import load_matrix
    from imgbuild.matrix.schema import SCHEMA_NAME, schema_text

    matrix = load_matrix(checkout.matrix)
    rendered = render_all(all_images(matrix), checkout.templates, checkout.dockerfiles)
    rendered |= readme_texts(checkout.root, matrix)
    rendered[checkout.root / "images" / SCHEMA_NAME] = schema_text()
    rendered[checkout.files / "pip" / "requirement_rules.py"] = render_rules()
    if not check:
        require_own(checkout, "render")
        changed = write_all(rendered, checkout.dockerfiles)
        for path in changed:
            echo(f"{'written' if path.exists() else 'deleted'}  {path.relative_to(checkout.root)}")
        echo(f"{len(rendered)} files, {len(changed)} changed.")
        return
    drift = find_drift(rendered, checkout.dockerfiles)
    if drift:
        lines = "\n".join(drift).replace(f"{checkout.root}/", "")
        raise CheckFailedError(
            f"These files do not agree with the matrix:\n{lines}\nRun `imgbuild render`."
        )
    echo(f"{len(rendered)} files agree with the matrix.")
