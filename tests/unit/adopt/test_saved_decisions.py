"""Decisions that a stranger may have saved in a repository, and images that they may name."""

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from imgbuild.adopt.adopt import _check_replaced
from imgbuild.adopt.adoption import (
    FILE,
    Adoption,
    adoption_text,
    read_adoption,
    read_result,
    result_path,
    write_adoption,
)
from imgbuild.adopt.choice import Decision
from imgbuild.adopt.decide import AdoptOptions, DecidedProgram, decide, default_tag, recall
from imgbuild.adopt.repository import open_repository
from imgbuild.adopt.start import _number
from imgbuild.core.errors import InputError
from imgbuild.core.project import Project
from imgbuild.core.yaml_file import parse_document
from imgbuild.dockerfile.labels import EXTENDS
from imgbuild.matrix.model import Matrix
from support.hostile_repositories import ADOPTED, PROGRAM, adopt_file
from support.project_copy import NO_ENGINE, ROOT, run_main

if TYPE_CHECKING:
    from imgbuild.build.context import BuildContext

TODAY = date(2026, 11, 1)
REFUSED = {
    "tag": ("--help", "a b:1", "adopted/x", "adopted/x:1\n", f"adopted/x@sha256:{'a' * 64}"),
    "image": ("../../x", "evil.invalid/x:1", "A"),
    "entry": ("../x.py", "/etc/passwd", "a\nb.py", "a/../../b.py", "a:b.py", "\x1b[31m.py", ".."),
    "module": ("os;x", "a b", "../x", "", "-c"),
    "arguments": (["a\nb"], ["\x1b[31m"], ["\u202e"], "a"),
    "python_path": (["../x"], ["/etc"], ["a:b"], ["a\nb"]),
    "date": ("yesterday", "2019-02-31", "2019-1-1", "20190101", "2019-12-31T00:00:00"),
    "pip": (
        *(["x @ http://evil.invalid/x.whl"], ["../x-1-py3-none-any.whl"], ["-r /etc/passwd"]),
        *(["--index-url=x"], ["a\nb"], [f"a==1 --hash=sha256:{'a' * 64}"], ["\u0430"]),
        ["a; " + "(" * 900 + "os_name>'x'" + ")" * 900],
    ),
    "optional": (["x.whl"], ["x-1-py3-none-any.WHL"], ["x===1.whl"]),
    "constraints": (["-c x"], ["./x.whl"]),
    "overrides": (["../../x=a"], ["a=../x.whl"], ["a=b @ http://x"], ["a"], ["=a"], ["a="]),
    "wheels_only": (["A"], ["a b"], ["../a"], ["a==1"]),
    "apt": (["-o"], ["./x.deb"], ["a b"], ["a\nb"]),
    "build_apt": (["--allow-unauthenticated"],),
    "user": ("root",),
}


@pytest.mark.parametrize("key", REFUSED)
def test_adoption_refuses_value(tmp_path: Path, key: str) -> None:
    for value in REFUSED[key]:
        (tmp_path / FILE).write_text(adopt_file(**{key: value}), encoding="utf-8")
        with pytest.raises(InputError, match=FILE):
            read_adoption(tmp_path)


def test_adoption_of_odd_text_is_read_again(tmp_path: Path) -> None:
    values = {
        **ADOPTED,
        "entry": "\U0001f600/\u00e9 #'\".py",
        "arguments": ("", "\U0001f600: -", "#"),
    }
    adoption = Adoption.model_validate(values)
    write_adoption(tmp_path, adoption, ())
    assert read_adoption(tmp_path) == adoption


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\x0b", "\x00", "\x1b", "\ud800"])
def test_adoption_comment_ends_with_its_line(tmp_path: Path, end: str) -> None:
    text = f"x{end}apt: [evil]"
    decisions = [Decision(text, text, text, (), (text,)), Decision("entry", text, text)]
    written = adoption_text(Adoption.model_validate(ADOPTED), decisions)
    document = parse_document(tmp_path / FILE, written)
    assert document.value == ADOPTED
    assert not document.faults


def _folder(tmp_path: Path, **changes: object) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / FILE).write_text(adopt_file(**changes))
    return folder


def _recall(folder: Path, project: Project, matrix: Matrix, tag: str | None = None) -> str:
    return _recall_program(folder, project, matrix, AdoptOptions(tag=tag)).adoption.tag


def _recall_program(
    folder: Path, project: Project, matrix: Matrix, options: AdoptOptions
) -> DecidedProgram:
    repository = open_repository(folder)
    saved = read_adoption(repository.folder)
    assert saved
    return recall(repository, project, matrix, saved, options)


@pytest.mark.parametrize("named", ["tf-2.15-cpu-debian", "tf-2.15-cpu-debian-arm64"])
def test_saved_decisions_are_good_on_every_machine(
    tmp_path: Path, project: Project, matrix: Matrix, named: str
) -> None:
    folder = _folder(tmp_path, image=named)
    for architecture, name in (("amd64", ""), ("arm64", "-arm64")):
        options = AdoptOptions(architecture=architecture)  # type: ignore[arg-type]
        program = _recall_program(folder, project, matrix, options)
        assert program.image.name == f"tf-2.15-cpu-debian{name}"
        assert program.base.machine == program.image.machine
        assert program.adoption.image == named, "the file is left as it is"


def test_saved_image_for_amd64_alone_is_refused_on_arm64(
    tmp_path: Path, project: Project, matrix: Matrix
) -> None:
    folder = _folder(tmp_path, image="tf-2.2-cpu-debian")
    with pytest.raises(InputError, match="only for linux/amd64") as refusal:
        _recall_program(folder, project, matrix, AdoptOptions(architecture="arm64"))
    assert FILE in str(refusal.value)


@pytest.mark.parametrize(
    "tag", ["imgbuild/tensorflow:2.2-cpu", "evil.invalid/x:1", "me/x:1", "docker.io/adopted/x:1"]
)
def test_recall_refuses_tag_of_stranger(
    tmp_path: Path, project: Project, matrix: Matrix, tag: str
) -> None:
    folder = _folder(tmp_path, tag=tag)
    with pytest.raises(InputError, match="nobody has chosen"):
        _recall(folder, project, matrix)
    assert _recall(folder, project, matrix, "me/y:1") == "me/y:1"
    ran = run_main(folder, "adopt", "--project", str(ROOT), env=NO_ENGINE)
    assert ran.returncode == 2
    assert tag in ran.stderr


def test_recall_accepts_own_tag(tmp_path: Path, project: Project, matrix: Matrix) -> None:
    assert _recall(_folder(tmp_path), project, matrix) == ADOPTED["tag"]


def test_recall_refuses_entry_that_is_no_program(
    tmp_path: Path, project: Project, matrix: Matrix
) -> None:
    folder = _folder(tmp_path, entry="notes.txt")
    (folder / "notes.txt").write_text("")
    with pytest.raises(InputError, match="no such Python file"):
        _recall(folder, project, matrix)


def test_recall_accepts_tag_chosen_here(
    tmp_path: Path, project: Project, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = _folder(tmp_path, tag="me/x:1")
    result_path(folder).parent.mkdir(parents=True)
    result_path(folder).write_text(json.dumps({"tag": "me/x:1"}))
    assert _recall(folder, project, matrix) == "me/x:1"


@pytest.mark.parametrize("text", ["", "[]", "x", "[" * 200_000])
def test_damaged_result_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    result_path(tmp_path).parent.mkdir(parents=True)
    result_path(tmp_path).write_text(text)
    assert read_result(tmp_path) == {}


def _replaces(program: DecidedProgram, labels: dict[str, str], *, is_named: bool) -> list[str]:
    lines: list[str] = []
    stored = SimpleNamespace(id="sha256:old", labels=labels)
    engine = SimpleNamespace(inspect=lambda _: stored)
    context = cast("BuildContext", SimpleNamespace(engine=engine, log=lines.append))
    _check_replaced(program, context, is_named=is_named)
    return lines


def test_adopt_keeps_images_of_others(
    tmp_path: Path, project: Project, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    repository = open_repository(_folder(tmp_path))
    program = decide(repository, project, matrix, AdoptOptions(), TODAY)
    with pytest.raises(InputError, match="--tag"):
        _replaces(program, {}, is_named=False)
    assert _replaces(program, {}, is_named=True)
    assert _replaces(program, {EXTENDS: "x"}, is_named=False)
    other = replace(program, adoption=program.adoption.model_copy(update={"tag": "me/x:1"}))
    with pytest.raises(InputError, match="--tag"):
        _replaces(other, {EXTENDS: "x"}, is_named=False)
    result_path(repository.folder).parent.mkdir(parents=True)
    result_path(repository.folder).write_text(json.dumps({"image": "sha256:old"}))
    assert _replaces(program, {}, is_named=False) == []


def test_run_takes_no_image_of_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = _folder(tmp_path, tag="evil.invalid/x:1")
    for words in (("--", "python", "train.py"), ("--exec", "--", "python")):
        ran = run_main(folder, "run", "--project", str(ROOT), *words, env=NO_ENGINE)
        assert ran.returncode == 2, ran
        assert "imgbuild adopt" in ran.stderr
        assert ran.stdout == ""


@pytest.mark.parametrize("where", [".", "inner"])
def test_adopt_refuses_checkout_of_repository(tmp_path: Path, where: str) -> None:
    folder = _folder(tmp_path)
    (folder / FILE).unlink()
    (folder / "inner").mkdir()
    (folder / "inner" / "train.py").write_text(PROGRAM)
    shutil.copy(ROOT / "matrix.yaml", folder)
    (folder / "imgbuild.local.yaml").write_text("engine: {host: 'tcp://evil.invalid:1'}\n")
    ran = run_main(folder, "adopt", where, env={**NO_ENGINE, "IMGBUILD_PROJECT": ""})
    assert ran.returncode in {2, 3}
    assert "evil" not in ran.stderr
    assert "belongs to the repository" in ran.stderr or ran.returncode == 3


def test_adopt_uses_the_running_checkout() -> None:
    """The tutorial's example is a folder of the checkout itself."""
    example = ROOT / "examples" / "churn"
    ran = run_main(example, "adopt", env={**NO_ENGINE, "IMGBUILD_PROJECT": ""})
    assert "TensorFlow 2.2 (tf-2.2-cpu-debian)" in ran.stdout
    assert "belongs to the repository" not in ran.stderr


@pytest.mark.parametrize("place", ["clone", "beside", "link", "run"])
def test_checkout_around_a_repository_is_not_used(tmp_path: Path, place: str) -> None:
    """It can be a part of the repository, whose parts look like clones or like other folders."""
    around = tmp_path / "paper"
    around.mkdir()
    folder = _folder(around)
    (folder / ".git").mkdir()
    (around / "matrix.yaml").write_text("damaged: [\n")
    (around / "imgbuild.local.yaml").write_text("engine: {host: 'tcp://evil.invalid:1'}\n")
    (around / "env").mkdir()
    (around / "env" / "matrix.yaml").write_text("damaged: [\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "train.py").write_text(PROGRAM)
    (around / "link").symlink_to(tmp_path / "elsewhere")
    where, words = {
        "clone": (folder, ["adopt"]),
        "beside": (around / "env", ["adopt", "../repository"]),
        "link": (around, ["adopt", "link"]),
        "run": (folder, ["run", "--exec", "--", "python", "train.py"]),
    }[place]
    ran = run_main(where, *words, env={**NO_ENGINE, "IMGBUILD_PROJECT": ""})
    assert "damaged" not in ran.stderr
    assert "evil" not in ran.stderr
    assert "--project" in ran.stderr


@pytest.mark.parametrize("folder", ["x" * 255, "---", "\udcff", "A..b__C", ""])
def test_default_tag_is_valid(folder: str) -> None:
    Adoption.model_validate({**ADOPTED, "tag": default_tag(folder)})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400, -1e300, True, "1", None])
def test_forged_number_of_report_is_none(value: Any) -> None:
    assert _number({"code": value}, "code") is None
