"""``imgbuild render``: write the Dockerfiles, or check that the committed ones are current."""

from pathlib import Path

from imgbuild.cli.options import PROJECT, echo, flag, open_project
from imgbuild.errors import CheckFailedError


def render(
    check: bool = flag("--check", "Write nothing; exit 1 if a Dockerfile differs."),
    project: Path | None = PROJECT,
) -> None:
    """Write images/dockerfiles from matrix.yaml and images/templates."""
    from imgbuild.dockerfile.render import find_drift, render_all, write_all
    from imgbuild.matrix.images import whole_family
    from imgbuild.matrix.load import SCHEMA_NAME, load_matrix, schema_text

    opened = open_project(project, writer="" if check else "render")
    images = whole_family(load_matrix(opened.matrix))
    rendered = render_all(images, opened.templates, opened.dockerfiles)
    rendered[opened.root / "images" / SCHEMA_NAME] = schema_text()
    if not check:
        changed = write_all(rendered, opened.dockerfiles)
        for path in changed:
            echo(f"{'written' if path.exists() else 'deleted'}  {path.relative_to(opened.root)}")
        echo(f"{len(rendered)} files, {len(changed)} changed.")
        return
    drift = find_drift(rendered, opened.dockerfiles)
    if drift:
        lines = "\n".join(drift).replace(f"{opened.root}/", "")
        raise CheckFailedError(
            f"Committed files differ from the matrix:\n{lines}\nRun `imgbuild render`."
        )
    echo(f"{len(rendered)} files are what the matrix says.")
