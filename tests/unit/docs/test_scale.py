"""The simulation of a farm: no division beats its bound, imgbuild's is close to it."""

import json
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from imgbuild.matrix.images import Image

sys.path.append(str(ROOT / "benchmarks"))
import scale


def test_the_division_is_within_15_percent_of_the_bound_at_16_runners(
    images: dict[str, Image],
) -> None:
    rows = scale.simulate([*images.values()], (1, 5), (1, 4, 16))
    for row in rows:
        assert row["bound"] <= min(row["cold"], row["equal"], row["each"]) + 1e-6
        assert row["cold"] <= row["each"]
        assert row["wheels"] <= row["cold"]
        assert row["cold"] <= row["bound"] * 1.15
    alone = rows[0]
    assert alone["cold sum"] == pytest.approx(alone["cold"])
    assert alone["each sum"] > alone["cold sum"] * 1.2


def test_the_plot_has_a_line_and_a_label_for_each_number_of_images(
    images: dict[str, Image],
) -> None:
    drawn = scale.drawing(scale.simulate([*images.values()][:6], (1, 10)))
    assert drawn.count('<path class="line') == 2 * 4 + 4
    for text in ("6 images", "60 images", "runners", "minutes", "prefers-color-scheme"):
        assert text in drawn


def test_a_real_run_is_held_against_the_model(tmp_path: Path, images: dict[str, Image]) -> None:
    """Twice the time for both builders is a slower machine; for one of them it is a wrong model."""
    names = ("tf-1.10-cpu-debian", "tf-2.12-gpu-debian")
    members = scale.family([images[name] for name in names], "cold", 1)
    times = [scale.busy([member]) for member in members]
    file = tmp_path / "run.json"
    for factors in ((2, 2), (2, 4)):
        slower = (times[0] * factors[0] + times[1] * factors[1]) / sum(times)
        runs = [
            {"names": [name], "seconds": seconds * factor}
            for name, seconds, factor in zip(names, times, factors, strict=True)
        ]
        file.write_text(json.dumps({"mode": "cold", "runs": runs}))
        lines = scale.check(file, [*images.values()]).splitlines()[2:]
        found = [line.split(" | ")[-1].strip(" |") for line in lines]
        assert found == [f"{slower / factor:.2f}" for factor in factors]
