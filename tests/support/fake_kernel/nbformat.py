"""Stands in for nbformat: read a notebook of format 4."""

import json
from types import SimpleNamespace


def read(path, as_version):
    assert as_version == 4
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    return SimpleNamespace(cells=[SimpleNamespace(**cell) for cell in cells])
