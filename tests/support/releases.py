"""The releases of TensorFlow in the matrix, for what tests expect: another patch moves no test."""

import re
from pathlib import Path

MATRIX = Path(__file__).parents[2] / "matrix.yaml"


def release_of(minor: str, stack: str = "debian") -> str:
    """Return the release that the stack's images of a minor have, such as 2.2.3 of 2.2."""
    row = rf"tensorflow: ({re.escape(minor)}\.\d+)(?:, |\n    )stack: {stack}\b"
    (release,) = {*re.findall(row, MATRIX.read_text(encoding="utf-8"))}
    return str(release)
