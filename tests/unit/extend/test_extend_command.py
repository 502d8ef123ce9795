"""The command line of `imgbuild extend`, as far as it needs no engine."""

import os
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from imgbuild.cli.extend_command import _locate_base, _name_result, _split_words
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.user_folders import state_dir
from imgbuild.engine.types import StoredImage
from imgbuild.extend.base_image import family_base
from imgbuild.matrix.images import Image
from imgbuild.matrix.selection import Selection
from imgbuild.suites.store import ReportStore
from support.fake_engine import FakeEngine
from support.project_copy import NO_ENGINE, ROOT, command

PROJECT = ("--project", str(ROOT))
ADDED = ("-t", "me/x:1", "--env", "A=1")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tf", "2.2"), "Nothing to add: give --pip, --requirements"),
        (("--tf", "2.2", "--env", "A=1", "pandas"), "after --pip: --pip pandas"),
        (("2.2", "pandas", "six", "--env", "A=1"), "after --pip: --pip pandas six"),
        (("-t", "me/x:1", "--tf", "2.2"), "Nothing to add: give --pip, --requirements"),
        ((*ADDED, "--tf", "2.2", "--tf", "2.3"), "one image, but 2 are selected"),
        (("-t", "me/x:1", "x:1", "--gpu"), "after --pip: --pip x:1"),
        (("-t", "me/x:1", "--env", "A"), "--env A: give NAME=VALUE."),
        (("-t", "me/x:1", "--copy", "none:/x"), "has no such file or folder"),
        ((*ADDED, "-t", "imgbuild/tensorflow:1"), "imgbuild/tensorflow"),
        ((*ADDED, "-t", "docker.io/imgbuild/tensorflow:1"), "names of imgbuild/tensorflow"),
        ((*ADDED, "-t", "index.docker.io/imgbuild/tensorflow:1"), "names of imgbuild/tensorflow"),
        (("-f", "train.yaml", "--pip", "x"), "--file train.yaml"),
        (("-f", "train.yaml", "--gpu"), "--file train.yaml"),
        (("-t", "me/x:1", "--requirements", "none.txt", "--print"), "none.txt: No such file"),
    ],
)
def test_misuse_is_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "train.yaml").write_text("tf: 2.2\ntag: me/x:1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=re.escape(says)):
        command("extend", *words, *PROJECT, env=NO_ENGINE)
    assert [path.name for path in tmp_path.iterdir()] == ["train.yaml"]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(names=("1.15", "pandas", "six")), (("1.15",), ("pandas", "six"))),
        (Selection(tensorflow=("1.15",), names=("six",)), ((), ("six",))),
        (Selection(), ((), ())),
    ],
)
def test_words_after_the_image_are_packages(
    selection: Selection, expected: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """`--pip pandas six` reaches the command as an option and a word."""
    left, packages = _split_words(selection)
    assert (left.names, packages) == expected
    assert left.tensorflow == selection.tensorflow


@pytest.mark.parametrize(
    ("folder", "name"),
    [("churn", "churn"), ("My Model_2", "my-model-2"), ("Ünï", "n"), ("__", "image")],
)
def test_a_result_is_named_after_the_folder(folder: str, name: str) -> None:
    assert _name_result(Path("/x") / folder) == name


def test_the_dockerfile_is_printed_without_an_engine(tmp_path: Path) -> None:
    """It has no step that nothing asks for."""
    (tmp_path / "app").mkdir()
    file = tmp_path / "train.yaml"
    file.write_text("name: tf-1.15-cpu-debian\ncopy: [app:/opt/app]\n")
    environment = {**NO_ENGINE, "IMGBUILD_SETTINGS": os.devnull}
    text = command("extend", "-f", str(file), "--print", *PROJECT, env=environment).stdout
    own, safe = (f"{start}imgbuild/tensorflow:1.15-cpu" for start in ("", "local.invalid/"))
    assert f"\n#   docker tag {own} {safe}\n" in text
    assert f"FROM {safe} AS base\n" in text
    steps = [line for line in text.splitlines() if line.startswith(("RUN ", "COPY "))]
    assert steps == ['COPY ["app", "/opt/app"]']


def test_a_printed_base_is_an_own_image(
    images: dict[str, Image], project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody's image can have the name of one of the matrix."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    base = family_base(images["tf-2.2-cpu-debian"], project)
    engine = FakeEngine([StoredImage("sha256:a", (base.reference,))])
    monkeypatch.setattr("imgbuild.engine.client.open_engine", lambda _: nullcontext(engine))
    assert _locate_base(base, project).id == ""
    ReportStore(state_dir() / "reports").import_results("sha256:a", {}, built=True)
    assert _locate_base(base, project).id == "sha256:a"
