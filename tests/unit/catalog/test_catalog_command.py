"""``imgbuild catalog``: what it reads, what it writes, what it refuses; the table of the README."""

import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from imgbuild.catalog import entries
from imgbuild.catalog.page import BEGIN, END, with_images_table
from imgbuild.core.errors import InputError
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import NEVER_BUILT, Action, PlanItem
from support.memory_registry import MemoryRegistry
from support.project_copy import NO_ENGINE, ROOT, command
from support.published_images import publish

TAG = "2.2.0-cpu-py38-debian12-openmpi4.1.4-20261120.1"


def run(*words: str) -> str:
    return command("catalog", *words, env=NO_ENGINE).output


@pytest.fixture(autouse=True)
def _no_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path_factory.mktemp("settings") / "imgbuild.local.yaml"
    settings.write_text("{}\n", encoding="utf-8")
    monkeypatch.setenv("IMGBUILD_SETTINGS", str(settings))


def test_the_table_is_written_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"a\n{BEGIN}\nold\n{END}\nb\n", encoding="utf-8")
    run("--readme", str(page), "--output", str(tmp_path / "site"))
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"a\n{BEGIN}\n\n| TensorFlow |")
    assert text.endswith(f"|\n\n{END}\nb\n")
    assert "old" not in text
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    "text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{END}", f"{BEGIN}{BEGIN}{END}"]
)
def test_a_readme_without_both_markers_stays(tmp_path: Path, text: str) -> None:
    page = tmp_path / "README.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="README"):
        with_images_table(page, "")
    with pytest.raises(InputError, match="gone"):
        with_images_table(tmp_path / "gone.md", "")


def test_without_engine_and_repository(tmp_path: Path) -> None:
    said = run("--output", str(tmp_path))
    assert "images, 0 of them" in said
    assert "note: " in said
    assert run("--output", str(tmp_path)) == said, "its own page is written again"


def test_an_image_of_other_inputs_and_the_documentation_beside_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: dict[str, Image]
) -> None:
    digest = InputDigest("0" * 64, {})
    items = (
        PlanItem(images["tf-2.2-cpu-debian"], digest, Action.BUILD, "changed: a pin"),
        PlanItem(images["tf-2.3-cpu-debian"], digest, Action.BUILD, NEVER_BUILT),
    )
    context = SimpleNamespace(plan=lambda **_: items)
    monkeypatch.setattr(entries, "open_context", lambda *_: nullcontext(context))
    assert "0 of them" in run("--output", str(tmp_path))
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    said = page.count('none">in the engine, built from other inputs<')
    assert said == 2, "of the image and of its row"
    assert 'href="docs/' not in page
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.html").touch()
    run("--output", str(tmp_path))
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    linked = {*re.findall(r'href="docs/(\w+)\.html"', page)}
    assert linked > {"index"}
    assert not [one for one in linked if not (ROOT / "docs" / f"{one}.md").is_file()]


def test_published_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryRegistry()
    newest = publish(registry, TAG)
    old = {"release": "20261101.1", "published": "2026-11-01T00:00:00Z", "moving": ()}
    publish(registry, TAG.replace("1120", "1101"), **old)
    monkeypatch.setattr(entries, "connect", lambda *_: registry)
    result = run("--output", str(tmp_path), "--published", "registry.test/team/app")
    assert "images, 1 of them" in result
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert f"docker pull registry.test/team/app:{newest.tag}" in text
    assert text.index("<strong>20261120.1</strong>") < text.index("<strong>20261101.1</strong>")
