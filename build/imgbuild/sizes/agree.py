"""The measured sizes as the budgets of the matrix: the one place that writes ``matrix.yaml``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from imgbuild.errors import InputError
from imgbuild.files import work_folder, write_text
from imgbuild.matrix.budget_edit import Budgets, with_budgets
from imgbuild.matrix.images import Image
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix


def agree(path: Path, matrix: Matrix, sizes: Sequence[tuple[Image, int]]) -> dict[str, int]:
    """Make the size of each image, in bytes, its budget; return the new budgets in MB by name.

    A budget is the next whole MB. Of the file nothing else changes.

    Raises:
        InputError: the file is written in a way that cannot be edited; it is as it was.

    """
    megabytes = [(image, -(-size // 1_000_000)) for image, size in sizes]
    budgets: dict[int, dict[str, int]] = {}
    for image, size in megabytes:
        budgets.setdefault(_index(matrix, image), {})[image.variant] = size
    text = with_budgets(path.read_text(encoding="utf-8"), budgets)
    _require_same_but(matrix, budgets, text)
    write_text(path, text)
    return {image.name: size for image, size in megabytes}


def _index(matrix: Matrix, image: Image) -> int:
    return next(index for index, row in enumerate(matrix.images) if row is image.row)


def _require_same_but(matrix: Matrix, budgets: Budgets, text: str) -> None:
    """Raise unless the new text is the matrix with the new budgets, and nothing else."""
    rows = tuple(
        row.model_copy(update={"budget": {**row.budget, **_of(budgets, index)}})
        for index, row in enumerate(matrix.images)
    )
    with work_folder("matrix") as folder:
        file = folder / "matrix.yaml"
        file.write_text(text, encoding="utf-8")
        if load_matrix(file) != matrix.model_copy(update={"images": rows}):
            raise InputError("matrix.yaml cannot be edited safely; write the budgets by hand.")


def _of(budgets: Budgets, index: int) -> Mapping[str, int]:
    return budgets.get(index, {})
