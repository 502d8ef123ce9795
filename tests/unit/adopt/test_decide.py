"""The decisions about a whole repository."""

import time
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
        "    pip install tensorflow\n"
    )
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='arms', install_requires=['tensorflow'])\n"
    )
    repository = open_repository(tmp_path)
    program = decide(repository, project, matrix, AdoptOptions(), date(2026, 11, 1))
    (note,) = [note for note in program.notes if "about" in note]
    assert note == "README.md:4 about armworld: pip install git+https://host.invalid/armworld"


def test_decisions_for_arm64_name_the_usual_image(
    tmp_path: Path, project: Project, matrix: Matrix
) -> None:
    """The file is committed, and read on machines of both kinds."""
    (tmp_path / "main.py").write_text("import tensorflow as tf\nprint(tf.function)\n")
    (tmp_path / "requirements.txt").write_text("tensorflow==2.15.0\n")
    repository = open_repository(tmp_path)
    options = AdoptOptions(architecture="arm64")
    program = decide(repository, project, matrix, options, date(2026, 11, 1))
    assert program.image.name == "tf-2.15-cpu-debian-arm64"
    assert (program.base.machine, program.base.image) == ("aarch64", program.image)
    assert program.adoption.image == "tf-2.15-cpu-debian"


def test_many_absent_packages_are_told_quickly(
    tmp_path: Path, project: Project, matrix: Matrix
) -> None:
    imports = "".join(f"import q{number:05}x\n" for number in range(2_000))
    (tmp_path / "main.py").write_text(
        f"import tensorflow as tf\n{imports}if __name__ == '__main__':\n    tf.app.run()\n"
    )
    for number in range(8):
        text = "git clone https://h/q00001x\ngit clone https://h/q00100x\n" * 2_000
        (tmp_path / f"README{number:02}.md").write_text(text)
    repository = open_repository(tmp_path)
    begin = time.process_time()
    program = decide(repository, project, matrix, AdoptOptions(), date(2026, 11, 1))
    assert len([note for note in program.notes if "about" in note]) == 1
    assert time.process_time() - begin < 10


def test_lone_file_is_the_program(tmp_path: Path, project: Project, matrix: Matrix) -> None:
    (tmp_path / "helper.py").write_text("import os\n")
    (tmp_path / "train.py").write_text("import tensorflow as tf\nprint(tf.__version__)\n")
    repository = open_repository(tmp_path)
    program = decide(repository, project, matrix, AdoptOptions(), date(2026, 11, 1))
    assert program.adoption.entry == "train.py"
    notebook = '{"cells": [{"cell_type": "code", "source": "import train"}], "metadata": {}}'
    (tmp_path / "Train.ipynb").write_text(notebook)
    repository = open_repository(tmp_path)
    program = decide(repository, project, matrix, AdoptOptions(), date(2026, 11, 1))
    assert program.adoption.entry == "Train.ipynb"
