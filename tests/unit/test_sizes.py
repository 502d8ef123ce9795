"""``imgbuild size`` on an engine in memory: tables, JSON, exit codes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from typer.testing import CliRunner

from imgbuild.cli import app, register
from imgbuild.cli.size_command import instruction
from imgbuild.engine.types import HistoryEntry, StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError, InputError
from imgbuild.project import Project
from imgbuild.sizes import image_layers
from releases import release_of

MB = 1_000_000
OLD, NEW, ABSENT = "tf-2.0-cpu-debian", "tf-2.2-cpu-debian", "tf-2.3-cpu-debian"
ROW = f"{{tensorflow: {release_of('2.2')}, stack: debian, variants: [cpu], horovod: 0.19.5"
#: The images have 17 and 18 MB, and share the lowest layer.
LAYERS = {OLD: (("a", 16 * MB), ("b", MB)), NEW: (("a", 16 * MB), ("c", 2 * MB))}
STEPS = ("COPY /out/ / # buildkit", "base")


class Size:
    """Runs the command; ``engine`` has the images."""

    def __init__(self, engine: FakeEngine, project: Path) -> None:
        self.engine = engine
        self.project = project

    def __call__(self, *arguments: str) -> list[str]:
        """Return the lines on stdout; an error of imgbuild's own is raised."""
        if not app.registered_commands:
            register(app)
        result = CliRunner().invoke(app, ["size", "--project", str(self.project), *arguments])
        self.output = result.stdout
        if isinstance(result.exception, ImgbuildError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    def json(self, *arguments: str) -> Any:
        self("--json", *arguments)
        return json.loads(self.output)

    def agree(self, budget: str) -> None:
        path = self.project / "matrix.yaml"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(ROW, f"{ROW}, budget: {budget}", 1), encoding="utf-8")


@pytest.fixture
def size(
    tmp_path: Path, project: Project, matrix_text: str, monkeypatch: pytest.MonkeyPatch
) -> Size:
    (tmp_path / "images").symlink_to(project.root / "images")
    (tmp_path / "matrix.yaml").write_text(matrix_text, encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("IMGBUILD_SETTINGS", raising=False)
    engine = FakeEngine()
    for name, layers in LAYERS.items():
        tags = (f"imgbuild/tensorflow:{name.removeprefix('tf-').removesuffix('-debian')}",)
        image_id, diff_ids = f"sha256:{name}", tuple(f"sha256:{one}" for one, _ in layers)
        engine.stored[image_id] = StoredImage(image_id, tags, layers=diff_ids)
        sizes = [size for _, size in reversed(layers)]
        steps = [HistoryEntry(*one) for one in zip(STEPS, sizes, strict=True)]
        engine.histories[image_id] = [HistoryEntry("ENV A=1"), *steps]
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _host: engine)
    return Size(engine, tmp_path)


def test_the_tables_of_a_family(size: Size) -> None:
    rows = [" ".join(line.split()) for line in size("--stack", "debian")]
    assert rows[0] == "image MB budget layers"
    assert f"{OLD} 17.0 - 2" in rows
    assert f"{NEW} 18.0 - 2" in rows
    assert f"{ABSENT} not built - -" in rows
    layers = rows.index("layer MB images made by")
    assert rows[layers + 1 : layers + 4] == [
        *("a 16.0 2 base", "b 1.0 1 COPY /out/ /", "c 2.0 1 COPY /out/ /")
    ]
    for row, begin in zip(rows[-3:], ("2 images, 35.0 MB", *["19.0 MB (54 %)"] * 2), strict=True):
        assert row.startswith(begin)


def test_json_has_every_byte(size: Size) -> None:
    found = size.json("--stack", "debian")
    images = {image["name"]: image for image in found["images"]}
    once = {"by_content": 19 * MB, "by_chain": 19 * MB}
    assert found["family"] == {"images": 2, "together": 35 * MB, **once}
    reference = "imgbuild/tensorflow:2.3-cpu"
    absent = {"name": ABSENT, "reference": reference, "budget": None, "built": False}
    assert images[ABSENT] == absent
    new = images[NEW]
    assert (new["size"], new["exceeded"]) == (18 * MB, False)
    assert new["layers"] == [
        {"diff_id": "sha256:a", "size": 16 * MB, "made_by": "base", "images": 2},
        {"diff_id": "sha256:c", "size": 2 * MB, "made_by": STEPS[0], "images": 1},
    ]
    moved = replace(size.engine.stored[f"sha256:{NEW}"], layers=("sha256:c", "sha256:a"))
    size.engine.stored[moved.id] = moved
    size.engine.histories[moved.id].reverse()
    family = size.json("--stack", "debian")["family"]
    assert (family["by_content"], family["by_chain"]) == (19 * MB, 35 * MB)


def test_an_image_over_its_budget_makes_it_fail(size: Size) -> None:
    size.agree("{cpu: 17}")
    with pytest.raises(CheckFailedError) as caught:
        size("--stack", "debian")
    for fact in (NEW, "18 MB", "5.9 %", "17 MB"):
        assert fact in str(caught.value)
    assert "17 EXCEEDED" in size.output  # the table is shown all the same
    with pytest.raises(CheckFailedError):
        size("--json")
    assert [one["exceeded"] for one in json.loads(size.output)["images"] if one["budget"]] == [True]
    # What is built from stand-ins has no budget.
    (size.project / "imgbuild.local.yaml").write_text("standin: {note: a test's}\n")
    size.engine.tag(f"sha256:{NEW}", "standin.invalid/imgbuild/tensorflow:2.2-cpu")
    assert "EXCEEDED" not in "\n".join(size("--stack", "debian"))


def test_any_image_of_the_engine(size: Size) -> None:
    found = size.json("--image", "imgbuild/tensorflow:2.2-cpu", "--image", f"sha256:{OLD}")
    assert [image["size"] for image in found["images"]] == [18 * MB, 17 * MB]
    for arguments, message in {
        ("--image", "app:1"): "app:1",
        ("--image", "app:1", "--tf", "2.2"): "--image",
        ("--tf", "2.3", "--stack", "debian"): ABSENT,
    }.items():
        with pytest.raises(InputError, match=message):
            size(*arguments)


def test_what_made_a_layer() -> None:
    history = [HistoryEntry("RUN b"), HistoryEntry("ADD a", 5)]
    assert [one.diff_id for one in image_layers(history, ("sha256:1",))] == [None, None]
    fitting = image_layers(history, ("sha256:1", "sha256:2"))
    assert [(one.diff_id, one.size) for one in fitting] == [("sha256:1", 5), ("sha256:2", 0)]
    assert instruction("RUN |1 A=1 /bin/sh -c set -eu\nb # buildkit") == "RUN set -eu b"
    assert instruction("RUN /bin/sh -c " + "x" * 80) == "RUN " + "x" * 53 + "..."
    assert instruction("") == "-"
