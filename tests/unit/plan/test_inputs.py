"""Settings that cannot be meant are refused before anything is made."""

from pathlib import Path
from typing import Any

import pytest

from imgbuild.errors import InputError
from imgbuild.matrix.image import Image
from imgbuild.plan.inputs import BuildInputs, Preparation, prepare_inputs
from imgbuild.settings import Settings

DIGEST = "sha256:" + "a" * 64
BASE = {"from": "registry", "image": f"x/y@{DIGEST}"}


def _prepare(images: dict[str, Image], cache: Path, settings: dict[str, Any]) -> BuildInputs:
    preparation = Preparation(cache, cache / "log", print, make=False)
    chosen = [images["tf-2.2-cpu-debian"]]
    return prepare_inputs(chosen, Settings.model_validate(settings), preparation)


def test_a_base_by_digest_needs_nothing_made(images: dict[str, Image], tmp_path: Path) -> None:
    inputs = _prepare(images, tmp_path, {"base": {"debian-12": BASE}})
    base = inputs.bases["debian-12"]
    assert (base.reference, base.digest, base.origin) == (f"x/y@{DIGEST}", DIGEST, "registry")
    assert inputs.interpreters["3.6.15"].origin == "source"
    assert [path.name for path in inputs.uv.iterdir()] == ["uv"]


def test_a_base_that_was_never_made_has_no_digest(images: dict[str, Image], tmp_path: Path) -> None:
    assert _prepare(images, tmp_path, {}).bases["debian-12"].digest is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"base": {"debian-13": BASE}}, "base: the matrix has no debian-13"),
        (
            {"cpython": {"3.7.9": {"from": "prefix", "path": "/x"}}},
            "cpython: the matrix has no 3.7.9; there are: 3.6.15",
        ),
        ({"ca_bundle": "/etc/passwd"}, "not a file of PEM certificates"),
        ({"ca_bundle": "/nonexistent"}, "not a file of PEM certificates"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    images: dict[str, Image], tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        _prepare(images, tmp_path, settings)
