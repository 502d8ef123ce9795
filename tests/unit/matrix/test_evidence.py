"""The facts of wheels: read beside the matrix, and what happens where they are not there yet."""

from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.dockerfile.render import render_dockerfile
from imgbuild.locks.requirements import lock_family
from imgbuild.matrix.evidence import Evidence, read_evidence
from imgbuild.matrix.gpus import gpu_support
from imgbuild.matrix.images import all_images
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rules import find_rule_faults


def test_a_row_whose_wheel_was_not_read_can_be_locked_and_not_rendered(
    matrix: Matrix, project: Project
) -> None:
    known = matrix.evidence.facts
    facts = {digest: one for digest, one in known.items() if "_gpu-2.2.0-" not in one.file}
    assert len(facts) < len(known), "the evidence has no such wheel"
    changed = matrix.with_evidence(Evidence(facts))
    assert not [*find_rule_faults(changed)]
    images = {image.name: image for image in all_images(changed)}
    image = images["tf-2.2-gpu-ubuntu"]
    assert image.lock_name in lock_family(image.matrix).names
    for use in (lambda: render_dockerfile(image, project.templates), lambda: gpu_support(image)):
        with pytest.raises(InputError, match=r"tensorflow-gpu 2\.2\.0, .*audit --write"):
            use()
    assert render_dockerfile(images["tf-2.2-cpu-ubuntu"], project.templates)


def test_the_compiler_of_a_wheel_is_that_of_its_python(matrix: Matrix) -> None:
    """Wheels of one release may differ: 1.14 for Python 3.7 was built by another compiler."""
    (old,) = (one for one in matrix.evidence.facts.values() if "w-1.14.0-cp36" in one.file)
    new = old.model_copy(update={"file": old.file.replace("cp36", "cp37")})
    evidence = Evidence({"a": new})
    assert evidence.wheel("tensorflow", "1.14.0", "cp37") == new
    assert evidence.wheel("tensorflow", "1.14.0", "cp36") is None
    assert "cp36" in evidence.pythons("Tensorflow", "1.14.0")


def test_no_evidence_is_none_of_any_wheel(tmp_path: Path) -> None:
    assert read_evidence(tmp_path / "evidence.json").facts == {}
    (tmp_path / "a file").touch()
    assert read_evidence(tmp_path / "a file" / "evidence.json").pythons("tensorflow", "2.2.0") == ()
