"""Budgets: what the matrix may say, what an image may have, and what a build makes of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bench import engine_has
from fake_engine import FakeEngine

from imgbuild.build.gate import over_budget
from imgbuild.matrix.images import Image, all_images, as_documented_image
from imgbuild.matrix.load import load_matrix
from releases import release_of

NAME = "tf-2.2-cpu-debian"
ROW = f"{{tensorflow: {release_of('2.2')}, stack: debian, variants: [cpu], horovod: 0.19.5}}"
Edited = Callable[..., Path]


def _with(budget: str) -> str:
    return ROW.replace("horovod: 0.19.5", f"horovod: 0.19.5, budget: {budget}")


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("{cpu: 850000000}", "'850000000' is not an image's size in MB"),
        ("{cpu: 9}", "'9' is not an image's size in MB"),
        ("{cpu: [1]}", "is not an image's size in MB"),
        ("{tpu: 850}", "'tpu' is not allowed; allowed: 'cpu' or 'gpu'"),
        ("{gpu: 850}", "a budget for gpu, which is no variant of this row: cpu"),
        ("850", "budget must be a mapping (key: value)"),
    ],
)
def test_an_implausible_budget_is_refused(
    edited: Edited, refusal: Callable[[Path], str], budget: str, expected: str
) -> None:
    assert expected in refusal(edited(ROW, _with(budget)))


def test_a_budget_belongs_to_one_image_and_never_to_a_documented_one(
    edited: Edited, images: dict[str, Image]
) -> None:
    matrix = load_matrix(edited(ROW, _with("{cpu: 850}")))
    budgets = {image.name: image.budget for image in all_images(matrix) if image.budget}
    assert budgets == {NAME: 850_000_000}
    gpu = images["tf-2.1-gpu-ubuntu"]
    gpu = replace(gpu, row=gpu.row.model_copy(update={"budget": {"gpu": 900}}))
    assert (gpu.budget, as_documented_image(gpu).budget) == (900_000_000, None)


def test_five_per_cent_more_is_allowed_and_one_byte_beyond_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, engine = 100_000_000, FakeEngine()
    assert over_budget(105_000_000, budget, engine) is None
    assert "its budget of 100 MB; 5 %" in (over_budget(105_000_001, budget, engine) or "")
    assert over_budget(10**12, None, engine) is None
    # A containerd store counts blocks. As tf-1.10-cpu-debian did, 531 MB on a graph driver:
    graph, containerd = 530_590_823, 583_450_624
    assert over_budget(containerd, graph, engine) is not None
    engine_has(monkeypatch, containerd_store=True)
    assert over_budget(containerd, graph, engine) is None
    assert over_budget(graph * 117 // 100, graph, engine) is not None
