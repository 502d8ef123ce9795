"""``imgbuild show --layers`` on an engine in memory: tables, JSON, budgets."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgbuild.build.sizes import image_layers
from imgbuild.cli.image_layers import instruction
from imgbuild.core.errors import CheckFailedError, InputError
from imgbuild.engine.types import Layer, StoredImage
from support.fake_engine import FakeEngine
from support.project_copy import command
from support.releases import release_of

MB = 1_000_000
OLD, NEW, ABSENT = "tf-2.0-cpu-debian", "tf-2.2-cpu-debian", "tf-2.3-cpu-debian"
ROW = f"{{tensorflow: {release_of('2.2')}, stack: debian, variants: [cpu], horovod: 0.19.5"
#: The images have 17 and 18 MB, and share the lowest layer.
LAYERS = {OLD: (("a", 16 * MB), ("b", MB)), NEW: (("a", 16 * MB), ("c", 2 * MB))}
STEPS = ("COPY /out/ / # buildkit", "base")

Edited = Callable[..., Path]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Return an engine that has two images."""
    engine = FakeEngine()
    for name, layers in LAYERS.items():
        tags = (f"imgbuild/tensorflow:{name.removeprefix('tf-').removesuffix('-debian')}",)
        image_id, diff_ids = f"sha256:{name}", tuple(f"sha256:{one}" for one, _ in layers)
        engine.stored[image_id] = StoredImage(image_id, tags, layers=diff_ids)
        sizes = [size for _, size in reversed(layers)]
        steps = [Layer(None, *step) for step in zip(sizes, STEPS, strict=True)]
        engine.histories[image_id] = [Layer(None, 0, "ENV A=1"), *steps]
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _host: engine)
    return engine


def size(matrix: Path, *words: str) -> str:
    """Return what the command prints for a family with this matrix."""
    return command("show", "--layers", "--project", str(matrix.parent), *words).stdout


@pytest.mark.usefixtures("engine")
def test_the_tables_of_a_family(edited: Edited) -> None:
    printed = size(edited(ROW, ROW), "--all", "--stack", "debian")
    rows = [" ".join(line.split()) for line in printed.splitlines()]
    assert rows[0] == "image MB budget layers"
    assert {f"{OLD} 17.0 - 2", f"{NEW} 18.0 - 2", f"{ABSENT} not built - -"} <= {*rows}
    layers = rows.index("layer MB images made by")
    assert rows[layers + 1 : layers + 4] == [
        *("a 16.0 2 base", "b 1.0 1 COPY /out/ /", "c 2.0 1 COPY /out/ /")
    ]
    for row, begin in zip(rows[-3:], ("2 images, 35.0 MB", *["19.0 MB (54 %)"] * 2), strict=True):
        assert row.startswith(begin)


def test_json_has_every_byte(engine: FakeEngine, edited: Edited) -> None:
    def found() -> Any:
        return json.loads(size(edited(ROW, ROW), "--all", "--json", "--stack", "debian"))

    images = {image["name"]: image for image in found()["images"]}
    once = {"by_content": 19 * MB, "by_chain": 19 * MB}
    assert found()["family"] == {"images": 2, "together": 35 * MB, **once}
    assert (images[ABSENT]["built"], images[NEW]["size"]) == (False, 18 * MB)
    assert images[NEW]["layers"] == [
        {"diff_id": "sha256:a", "size": 16 * MB, "made_by": "base", "images": 2},
        {"diff_id": "sha256:c", "size": 2 * MB, "made_by": STEPS[0], "images": 1},
    ]
    moved = replace(engine.stored[f"sha256:{NEW}"], layers=("sha256:c", "sha256:a"))
    engine.stored[moved.id] = moved
    engine.histories[moved.id].reverse()
    family = found()["family"]
    assert (family["by_content"], family["by_chain"]) == (19 * MB, 35 * MB)


def test_an_image_over_its_budget_makes_it_fail(engine: FakeEngine, edited: Edited) -> None:
    matrix = edited(ROW, f"{ROW}, budget: {{cpu: 17}}")
    with pytest.raises(CheckFailedError) as caught:
        size(matrix, "--all", "--stack", "debian")
    for fact in (NEW, "18 MB", "5.9 %", "17 MB"):
        assert fact in str(caught.value)
    # What is built from stand-ins has no budget.
    (matrix.parent / "imgbuild.local.yaml").write_text("standin: {note: a test's}\n")
    engine.tag(f"sha256:{NEW}", "standin.invalid/imgbuild/tensorflow:2.2-cpu")
    assert "EXCEEDED" not in size(matrix, "--all", "--stack", "debian")


@pytest.mark.usefixtures("engine")
def test_any_image_of_the_engine(edited: Edited) -> None:
    matrix = edited(ROW, ROW)
    several = ("imgbuild/tensorflow:2.2-cpu", f"sha256:{OLD}")
    found = json.loads(size(matrix, "--json", *several))
    assert [image["size"] for image in found["images"]] == [17 * MB, 18 * MB]
    for words, fact in {
        "app:1": "app:1",
        "sha256:tf-2.2-cpu-debian --tf 2.2": "cannot be combined",
        "--tf 2.3 --stack debian": ABSENT,
    }.items():
        with pytest.raises(InputError, match=fact):
            size(matrix, *words.split())


def test_what_made_a_layer() -> None:
    history = [Layer(None, 0, "RUN b"), Layer(None, 5, "ADD a")]
    assert [one.diff_id for one in image_layers(history, ("sha256:1",))] == [None, None]
    fitting = image_layers(history, ("sha256:1", "sha256:2"))
    assert [(one.diff_id, one.size) for one in fitting] == [("sha256:1", 5), ("sha256:2", 0)]
    assert instruction("RUN |1 A=1 /bin/sh -c set -eu\nb # buildkit") == "RUN set -eu b"
    assert instruction("RUN /bin/sh -c " + "x" * 80) == "RUN " + "x" * 53 + "..."
