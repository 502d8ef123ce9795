"""``imgbuild list``: the matrix as a table."""

from imgbuild.cli import options
from imgbuild.cli.options import echo, print_json, select, takes_selection
from imgbuild.matrix.selection import Selection
from imgbuild.text import aligned


@takes_selection(without="everything")
def list_images(
    selection: Selection,
    as_json: options.JsonOption = False,
    project: options.ProjectOption = None,
) -> None:
    """List the images of the matrix."""
    from imgbuild.matrix.tags import planned_tags

    images = select(options.open_project(project), selection.or_everything)
    if as_json:
        print_json([{**one.as_json(), "published": planned_tags(one).as_json()} for one in images])
        return
    columns = ["tensorflow", "python", "mpi", "horovod", "tensorboard"]
    columns += ["cuda"] if any(image.variant == "gpu" for image in images) else []
    rows = [(image.name, *(image.keys.get(name, "-") for name in columns)) for image in images]
    echo("\n".join(aligned([("image", *columns), *rows])))
