"""TensorFlow's own loader, on made-up GPUs: it uses those that the rules say it uses.

An image takes 5 GB, so each day has another one. benchmarks/gpu_cells.py asks them all.
"""

import time
from pathlib import Path

import pytest

from imgbuild.engine.client import Engine
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from support.checkout import Bases, Checkout
from support.gpu_cells import ask_image, compile_driver, loader_differences, read_answers

_DAY = 86_400  # seconds


@pytest.mark.nightly
def test_the_image_of_the_day_answers_as_recorded(
    base: Bases, checkout: Checkout, engine: Engine, tmp_path: Path
) -> None:
    images = {image.name: image for image in all_images(load_matrix(checkout.project.matrix))}
    recorded = read_answers()
    name = [*recorded][int(time.time() / _DAY) % len(recorded)]
    was_there = bool(engine.inspect(images[name].tags[0]))
    tag = base(name).tag
    compile_driver(tmp_path / "driver.so")
    client = ["docker", *(["--host", checkout.host] if checkout.host else [])]
    try:
        answers = ask_image(images[name], tag, tmp_path / "driver.so", client)
    finally:
        if not was_there:
            checkout.printed("rmi", tag)
    assert loader_differences(images[name], answers) == []
    assert answers == recorded[name]
