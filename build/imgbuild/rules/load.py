"""The first arrow: ``matrix.yaml`` → :class:`Matrix`, with every fault at once."""

from pathlib import Path

from imgbuild.matrix.model import Matrix
from imgbuild.matrix.references import find_faults
from imgbuild.rules.faults import rule_faults
from imgbuild.rules.tags import tag_faults
from imgbuild.strict_yaml import check
from imgbuild.yaml_document import read_document


def load_matrix(path: Path) -> Matrix:
    """Return the validated matrix.

    Raises:
        InputError: the file is unreadable, not YAML, or wrong; each fault as
            ``matrix.yaml:LINE:COLUMN``, what is wrong, and what is allowed.

    """
    document = read_document(path)
    matrix, faults = check(document, Matrix)
    broken = [*rule_faults(matrix), *tag_faults(matrix)] if matrix else []
    faults = [*faults, *find_faults(document.value), *broken]
    if matrix is None or faults:
        raise document.reject(faults)
    return matrix
