"""What is said before an image is built as documented."""

from imgbuild.matrix.images import Image, documented_family
from imgbuild.matrix.model import Matrix
from imgbuild.matrix.rules import documented_warnings


def _family(matrix: Matrix) -> dict[str, Image]:
    return {image.name: image for image in documented_family(matrix)}


def test_a_broken_rule_is_one_paragraph_with_source_and_consequence(matrix: Matrix) -> None:
    image = _family(matrix)["tf-2.1-gpu-ubuntu-as-documented"]
    differences, warning = documented_warnings(image)
    assert "cuda 10.0 in place of 10.1" in differences
    assert "git stays 2.17.1, since 2.7.4 is not available" in differences
    assert warning.startswith("Warning: tf-2.1-gpu-ubuntu-as-documented: cuda 10.0 breaks the rule")
    for part in ("tensorflow-cuda", "Source: the wheels", "silently runs on the CPU", "--no-test"):
        assert part in warning
    assert "\n" not in warning


def test_what_breaks_no_rule_is_only_told(matrix: Matrix) -> None:
    (differences,) = documented_warnings(_family(matrix)["tf-2.3-cpu-debian-as-documented"])
    assert "horovod 0.20.0 in place of 0.20.3" in differences
