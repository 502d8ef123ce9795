"""Input digests, bake definitions, tags, help and JSON output are those of the golden files.

A file moves only in a commit that means it. ``make derived`` writes the files again; the diff is
the review. No image moves unseen: each has a digest there. An image of each kind is there in full,
which shows what moved.
"""

import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from imgbuild.build.targets import image_target
from imgbuild.core.files import sha256
from imgbuild.core.project import Project
from imgbuild.core.settings import Settings
from imgbuild.dockerfile.variables import epoch_seconds
from imgbuild.engine.build import bake_definition
from imgbuild.inputs.base import Base
from imgbuild.inputs.build_inputs import BuildInputs, InterpreterInput, list_downloads
from imgbuild.matrix.evidence import MACHINES
from imgbuild.matrix.images import (
    Image,
    all_images,
    planned_tags,
    with_other_architectures,
)
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.model import Matrix
from imgbuild.plan.digest import InputDigest, InputReader, input_digest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.suites.catalog import read_suites, select_required, suite_keys
from imgbuild.suites.expectation import expectation
from support.generated_tables import click_commands
from support.project_copy import ROOT
from support.project_copy import command as run

GOLDEN = Path(__file__).parent / "golden"
#: An image of each kind: Python, MPI and CUDA of each origin, and one for arm64.
IN_FULL = (
    "tf-2.2-cpu-debian",
    "tf-1.12-cpu-debian-intelmpi",
    "tf-2.2-gpu-ubuntu",
    "tf-2.12-gpu-debian",
    "tf-2.18-cpu-debian-arm64",
)


@pytest.fixture(scope="module")
def real_matrix(project: Project) -> Matrix:
    return load_matrix(project.matrix)


@pytest.fixture(scope="module")
def inputs(real_matrix: Matrix, project: Project) -> BuildInputs:
    """Return the inputs of a machine without settings, whose base images have made-up digests."""
    images = with_other_architectures(all_images(real_matrix))
    return BuildInputs(
        {i.base_name: Base(f"base:{i.base_name}", f"sha256:{i.base_name}", "") for i in images},
        {
            (version, machine): InterpreterInput(None, "source", "source")
            for version in real_matrix.python
            for machine in MACHINES.values()
        },
        Path("/uv"),
        "0.13.8",
        downloads={i.name: list_downloads(i, project.locks, Settings()) for i in images},
    )


@pytest.fixture(scope="module")
def digests(
    real_matrix: Matrix, project: Project, inputs: BuildInputs
) -> list[tuple[Image, InputDigest]]:
    reading = InputReader(project)
    images = with_other_architectures(all_images(real_matrix))
    return [(i, input_digest(i, inputs, reading)) for i in images]


def _compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("IMGBUILD_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        f"{name} differs; if it is meant, `make derived` writes it"
    )


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def test_input_digests(digests: list[tuple[Image, InputDigest]]) -> None:
    parts = {i.name: dict(d.parts) for i, d in digests if i.name in IN_FULL}
    totals = {i.name: d.total for i, d in digests}
    _compare("input_digests.json", _json({"totals": totals, "parts": parts}))


def test_bake_definition(
    digests: list[tuple[Image, InputDigest]], project: Project, inputs: BuildInputs
) -> None:
    made = {}
    for image, digest in digests:
        item = PlanItem(image, digest, Action.BUILD, "")
        target = image_target(item, inputs, {}, project, None)
        text = _json(bake_definition(target, epoch_seconds(image))).replace(str(ROOT), ".")
        made[image.name] = json.loads(text)
    in_full = {name: made[name] for name in IN_FULL}
    hashes = {name: sha256(_json(definition).encode()) for name, definition in made.items()}
    _compare("bake_definition.json", _json({"in full": in_full, "digests": hashes}))


def test_suite_keys(real_matrix: Matrix, project: Project) -> None:
    """A key that moves makes every image run that suite again."""
    suites = read_suites(project.suites)
    digests = {}
    for image in with_other_architectures(all_images(real_matrix)):
        expected = expectation(image, project)
        keys = suite_keys(select_required(suites, expected), expected)
        digests[image.name] = sha256(_json(keys).encode())
    _compare("suite_keys.json", _json(digests))


def test_tags(digests: list[tuple[Image, InputDigest]]) -> None:
    found = {
        i.name: {"local": list(i.tags), **asdict(planned_tags(i, "2026.01.02"))} for i, _ in digests
    }
    _compare("tags.json", _json(found))


@pytest.mark.parametrize("command", ["", *click_commands()])
def test_help(command: str) -> None:
    output = run(*command.split(), "--help", env={"COLUMNS": "100"}).output
    name = command.replace(" ", "-") or "imgbuild"
    _compare(f"help/{name}.txt", output)


@pytest.mark.parametrize("words", ["list --tf 2.2 --json", "show --tf 2.2 --gpu --json"])
def test_json_output(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMGBUILD_PROJECT", str(ROOT))
    _compare(f"{re.sub('[^a-z0-9]+', '-', words)}.json", run(*words.split()).output)
