"""The decisions about a whole repository."""

from datetime import date
from pathlib import Path

from imgbuild.adopt.decide import AdoptOptions, decide
from imgbuild.adopt.repository import open_repository
from imgbuild.core.project import Project
from imgbuild.matrix.model import Matrix


def test_readme_says_where_a_package_is(tmp_path: Path, project: Project, matrix: Matrix) -> None:
    (tmp_path / "main.py").write_text(
        "import tensorflow as tf\nimport armworld\nimport tqdm\n"
        "if __name__ == '__main__':\n    tf.app.run()\n"
    )
    (tmp_path / "README.md").write_text(
        "# Arms\n\narmworld is a simulator, and tqdm a bar.\n"
        "    pip install git+https://host.invalid/armworld\n    pip install tqdm\n"
    )
    repository = open_repository(tmp_path)
    program = decide(repository, project, matrix, AdoptOptions(), date(2026, 11, 1))
    (note,) = [note for note in program.notes if "about" in note]
    assert note == "README.md:4 about armworld: pip install git+https://host.invalid/armworld"
