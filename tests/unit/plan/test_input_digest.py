"""The input digest: each fact that decides it, one at a time."""

from dataclasses import replace
from pathlib import Path

from bench import INPUTS, NEW

from imgbuild.inputs.build_inputs import BuildInputs, ImageDownloads
from imgbuild.inputs.download import Download
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputReader, input_digest
from imgbuild.project import Project

FILE = Download("a.tar", "https://x.example/a.tar", "a" * 64)
OTHER = Download("a.tar", "https://x.example/a.tar", "b" * 64)


def _with(*contexts: tuple[str, Download]) -> BuildInputs:
    files = {name: (file,) for name, file in contexts}
    return replace(INPUTS, downloads={NEW: ImageDownloads(files, {})})


def test_every_input_decides_the_digest(images: dict[str, Image], project: Project) -> None:
    reader, image = InputReader(project), images[NEW]
    python = INPUTS.interpreters["3.6.15"]
    base = INPUTS.bases["debian-12"]
    each = (
        INPUTS,
        replace(INPUTS, bases={"debian-12": replace(base, digest="sha256:x")}),
        replace(INPUTS, interpreters={"3.6.15": replace(python, digest="sha256:x")}),
        replace(INPUTS, uv_version="0.13.9"),
        replace(INPUTS, standin="a note"),
        replace(INPUTS, snapshots={"debian": Path("/20261101T000000Z")}),
        _with(("downloads", FILE)),
        _with(("downloads", OTHER)),
        _with(("conda-packages", FILE)),
        _with(("downloads", FILE), ("conda-packages", FILE)),
    )
    totals = [input_digest(image, one, reader).total for one in each]
    assert len({*totals}) == len(each)
