"""Which image an extension stands on: one of the matrix only by its name and every version."""

from dataclasses import replace

import pytest
from bench import NEW, OLD, Bench
from test_extended import Extending, base, extending

from imgbuild.engine.types import StoredImage
from imgbuild.extend import base_image
from imgbuild.extend.base_image import family_base, referenced_base
from imgbuild.matrix.images import Image
from imgbuild.project import Project
from imgbuild.suites.container import ImageContents

__all__ = ["base", "extending"]
REFERENCE = "registry.example.org/ml:2.2-cpu"


@pytest.mark.parametrize(
    ("name", "numpy", "known"),
    [(NEW, "", True), (NEW, "1.18.99", False), (OLD, "", False), ("", "", False)],
)
def test_it_is_of_the_matrix_by_name_and_versions(  # noqa: PLR0913, PLR0917 - fixtures
    bench: Bench,
    images: dict[str, Image],
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    numpy: str,
    known: bool,
) -> None:
    packages = {**family_base(images[NEW], project).packages}
    packages |= {"numpy": numpy} if numpy else {}
    found = ImageContents((), False, False, "3.6.15", "", (), ("debian", "12"))
    found = replace(found, packages=packages, glibc="2.36")
    monkeypatch.setattr(base_image, "read_contents", lambda *_: found)
    labels = {"imgbuild.name": name} if name else {}
    bench.engine.stored["sha256:own"] = StoredImage("sha256:own", (REFERENCE,), labels)
    base = referenced_base(REFERENCE, bench.context)
    assert (base.image is not None) is known
    assert base.name == (NEW if known else REFERENCE)
    assert base.packages == packages


def test_without_tests_no_suite_runs(extending: Extending) -> None:
    assert extending.build(test=False).report is None
    assert extending.bench.tested == []
    assert extending.build().report
