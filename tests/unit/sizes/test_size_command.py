"""``imgbuild size`` on an engine in memory: tables, JSON, exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from hand_made import docker_archive, tar
from typer.testing import CliRunner

from imgbuild.cli import register
from imgbuild.cli.size_tables import instruction, megabytes
from imgbuild.engine.types import StoredImage
from imgbuild.errors import CheckFailedError, ImgbuildError, InputError

MB = 1_000_000
OLD, NEW, ABSENT = "tf-2.0-cpu-debian", "tf-2.2-cpu-debian", "tf-2.3-cpu-debian"
ROW = "{tensorflow: 2.2.0, stack: debian, variants: [cpu], horovod: 0.19.5"
BASE = tar(("usr/a", b"1" * 15 * MB), ("usr/b", b"1" * MB))
TOP = tar(("usr/.wh.b", b""), ("opt/python/c", b"1" * 2 * MB))
#: The images have 17 and 18 MB, and share the lowest layer.
LAYERS = {OLD: (BASE, tar(("usr/x", b"1" * MB))), NEW: (BASE, TOP)}


class Size:
    """Runs the command; ``engine`` has the images."""

    def __init__(self, engine: FakeEngine, project: Path) -> None:
        self.engine = engine
        self.project = project

    def __call__(self, *arguments: str) -> list[str]:
        """Return the lines on stdout; an error of imgbuild's own is raised."""
        import typer

        app = typer.Typer()
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
def size(tmp_path: Path, matrix_text: str, monkeypatch: pytest.MonkeyPatch) -> Size:
    (tmp_path / "matrix.yaml").write_text(matrix_text, encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("IMGBUILD_SETTINGS", raising=False)
    engine = FakeEngine(
        [
            StoredImage(f"sha256:{name}", (f"imgbuild/tensorflow:{name.removeprefix('tf-')}",))
            for name in LAYERS
        ]
    )
    engine.archives = {
        f"sha256:{name}": docker_archive(layers, ("base", "COPY /out/ / # buildkit"))
        for name, layers in LAYERS.items()
    }
    monkeypatch.setattr("imgbuild.engine.client.Engine", lambda _host: engine)
    return Size(engine, tmp_path)


def test_the_tables_of_a_family(size: Size) -> None:
    lines = size("--stack", "debian")
    rows = [" ".join(line.split()) for line in lines]
    assert rows[0] == "image MB budget waste Python system"
    assert f"{OLD} 17.0 - 0 0 17.0" in rows
    assert f"{NEW} 18.0 - 1.0 2.0 15.0" in rows
    assert f"{ABSENT} not built - - - -" in rows
    table = rows[rows.index("layer MB images waste mostly made by") :]
    assert [row.split()[1:] for row in table[1:4]] == [
        ["16.0", "2", "0", "system", "16.0", "base"],
        ["1.0", "1", "0", "system", "1.0", "COPY", "/out/", "/"],
        ["2.0", "1", "0", "Python", "2.0", "COPY", "/out/", "/"],
    ]
    assert rows[-3:] == [
        "2 images, 35.0 MB together.",
        "19.0 MB (54 %): each layer once, as a registry stores them.",
        "19.0 MB (54 %): each layer once over the same layers, as a graph driver stores them.",
    ]


def test_the_wasted_files(size: Size) -> None:
    lines = size("--tf", "2.2", "--stack", "debian", "--waste")
    assert lines[-3] == f"{NEW}: 1.0 MB wasted in 1 files."
    assert lines[-1].split()[0::2] == ["1.0", "removed", "/usr/b"]


def test_json_has_every_byte(size: Size) -> None:
    found = size.json("--stack", "debian")
    images = {image["name"]: image for image in found["images"]}
    assert found["family"] == {
        "images": 2,
        "together": 35 * MB,
        "by_content": 19 * MB,
        "by_chain": 19 * MB,
    }
    assert images[ABSENT] == {
        "name": ABSENT,
        "reference": "imgbuild/tensorflow:2.3-cpu-debian",
        "budget": None,
        "built": False,
    }
    new = images[NEW]
    assert (new["size"], new["waste"], new["exceeded"]) == (18 * MB, MB, False)
    assert new["components"] == {"Python": 2 * MB, "system": 15 * MB}
    wasted = {"path": "usr/b", "size": MB, "written": 0, "gone": 1, "removed": True}
    assert new["wasted"] == [wasted]
    base = new["layers"][0]
    assert (base["size"], base["waste"], base["images"]) == (16 * MB, MB, 2)
    assert base["made_by"] == "base"
    assert (sum(layer["size"] for layer in new["layers"])) == 18 * MB


def test_an_image_over_its_budget_makes_it_fail(size: Size) -> None:
    size.agree("{cpu: 17}")
    with pytest.raises(CheckFailedError) as caught:
        size("--stack", "debian")
    assert str(caught.value).startswith(
        f"{NEW}: it has 18 MB, 5.9 % more than its budget of 17 MB, and 5 % is what may be."
    )
    assert caught.value.exit_code == 1
    assert "17 EXCEEDED" in size.output  # the table is shown all the same
    with pytest.raises(CheckFailedError):
        size("--json")
    assert [one["exceeded"] for one in json.loads(size.output)["images"] if one["budget"]] == [True]


def test_an_image_within_its_budget_does_not(size: Size) -> None:
    size.agree("{cpu: 18}")
    rows = {line.split()[0]: line.split() for line in size("--stack", "debian") if line}
    assert rows[NEW][:4] == [NEW, "18.0", "18", "1.0"]


def test_what_is_built_from_stand_ins_has_no_budget(size: Size) -> None:
    size.agree("{cpu: 17}")
    (size.project / "imgbuild.local.yaml").write_text("standin: {note: a test's}\n")
    size.engine.tag(f"sha256:{NEW}", "standin.invalid/imgbuild/tensorflow:2.2-cpu-debian")
    assert "EXCEEDED" not in "\n".join(size("--stack", "debian"))


def test_nothing_built_is_an_error_and_one_missing_image_is_not(size: Size) -> None:
    with pytest.raises(InputError, match=f"has none of the selected images: {ABSENT}. Build them"):
        size("--tf", "2.3", "--stack", "debian")


def test_any_image_of_the_engine(size: Size) -> None:
    found = size.json("--image", "imgbuild/tensorflow:2.2-cpu-debian", "--image", f"sha256:{OLD}")
    assert [image["size"] for image in found["images"]] == [18 * MB, 17 * MB]
    with pytest.raises(InputError, match="The engine has no image app:1"):
        size("--image", "app:1")
    with pytest.raises(InputError, match="--image names images by themselves"):
        size("--image", "app:1", "--tf", "2.2")


def test_a_second_run_reads_nothing(size: Size) -> None:
    first = size("--stack", "debian")
    assert size("--stack", "debian") == first
    assert size.engine.calls.count("save") == 2


@pytest.mark.parametrize(
    ("made_by", "short"),
    [
        ("COPY /out/ / # buildkit", "COPY /out/ /"),
        ("RUN |1 A=1 /bin/sh -c set -eu\nb # buildkit", "RUN set -eu b"),
        ("/bin/sh -c #(nop) ADD x in /", "RUN #(nop) ADD x in /"),
        ("RUN /bin/sh -c " + "x" * 60, "RUN " + "x" * 41 + "..."),
        ("", "-"),
    ],
)
def test_what_made_a_layer_in_short(made_by: str, short: str) -> None:
    assert instruction(made_by) == short


def test_what_is_little_is_not_nothing() -> None:
    assert [megabytes(one) for one in (0, 1, 49_999, 50_000, 10**9)] == [
        "0", "<0.1", "<0.1", "0.1", "1000.0",
    ]  # fmt: skip


def test_sizes_become_budgets_in_the_matrix(size: Size) -> None:
    path = size.project / "matrix.yaml"
    before = path.read_text(encoding="utf-8").splitlines()
    size.agree("{cpu: 12}")
    size("--stack", "debian", "--write-budgets")  # exceeded, which is what it mends
    after = path.read_text(encoding="utf-8").splitlines()
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert [new for _, new in pairs] == [
        old.replace("}", f", budget: {{cpu: {megabytes}}}}}")
        for (old, _), megabytes in zip(pairs, (17, 18), strict=True)
    ]
    found = {one["name"]: one["budget"] for one in size.json("--stack", "debian")["images"]}
    assert {name: budget for name, budget in found.items() if budget} == {
        OLD: 17 * MB,
        NEW: 18 * MB,
    }


def test_a_budget_is_the_next_whole_megabyte(size: Size) -> None:
    size.engine.archives[f"sha256:{NEW}"] = docker_archive((BASE, tar(("a", b"1"))))
    size("--tf", "2.2", "--stack", "debian", "--write-budgets")
    assert "budget: {cpu: 17}" in (size.project / "matrix.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("others", [["--image", "a"], ["--as-documented", "--gpu"]])
def test_only_images_of_the_matrix_have_budgets(size: Size, others: list[str]) -> None:
    with pytest.raises(InputError, match="--write-budgets is for images of the matrix"):
        size("--write-budgets", *others)


def test_an_edit_that_would_change_more_is_not_written(
    size: Size, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = size.project / "matrix.yaml"
    before = path.read_bytes()
    monkeypatch.setattr(
        "imgbuild.sizes.agree.with_budgets",
        lambda text, _: text.replace("the last pip that", "a pip that", 1),
    )
    with pytest.raises(InputError, match="cannot be edited safely"):
        size("--tf", "2.2", "--stack", "debian", "--write-budgets")
    assert path.read_bytes() == before
