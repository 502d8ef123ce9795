"""The history of a repository, from the objects of git alone."""

import os
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from imgbuild.adopt import history as module
from imgbuild.adopt.history import read_history
from imgbuild.core.process import run

BOT = "dependabot[bot] <49699333+dependabot[bot]@users.noreply.github.com>"
PERSON = "Ada <ada@example.org>"


#: Settings of git that name a program.
PROGRAM_SETTINGS = (
    *("core.pager", "core.fsmonitor", "core.editor", "core.sshCommand", "core.askPass"),
    *("gpg.program", "gpg.ssh.program", "diff.external", "diff.x.command", "alias.log"),
    *("diff.x.textconv", "filter.x.clean", "filter.x.smudge", "filter.x.process"),
    *("pager.log", "credential.helper", "uploadpack.packObjectsHook", "alias.cat-file"),
    *("sequence.editor", "interactive.diffFilter", "remote.origin.uploadpack"),
)


class Work:
    """A repository of git, with commits at chosen days."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str, day: str = "2018-01-01", author: str = PERSON) -> str:
        name, _, address = author.partition(" <")
        when = f"{day}T12:00:00Z"
        people = {
            "GIT_AUTHOR_NAME": name,
            "GIT_AUTHOR_EMAIL": address.rstrip(">"),
            "GIT_AUTHOR_DATE": when,
            "GIT_COMMITTER_NAME": "GitHub",
            "GIT_COMMITTER_EMAIL": "noreply@github.com",
            "GIT_COMMITTER_DATE": when,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PATH": os.environ["PATH"],
        }
        finished = run(["git", *words], cwd=self.folder, env=people, timeout=30)
        assert finished.ok, finished.last()
        return finished.output.strip()

    def commit(self, day: str, author: str = PERSON, subject: str = "x", **texts: str) -> str:
        for name, text in texts.items():
            path = self.folder / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject, day=day, author=author)
        return self.git("rev-parse", "HEAD")

    def write(self, name: str, text: str) -> None:
        path = self.folder / ".git" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    work = Work(tmp_path / "work")
    work.commit("2018-03-01", **{"src__train.py": "a", "requirements.txt": "tensorflow==1.8\n"})
    work.commit("2018-06-03", **{"src__train.py": "b"})
    work.commit("2021-01-01", **{"README.md": "b"})
    return work


def test_history_date_is_of_code(work: Work) -> None:
    history = read_history(work.folder, ())
    assert history.code_date == date(2018, 6, 3)
    assert history.note == ""


def test_history_date_is_of_notebooks(work: Work) -> None:
    work.commit("2019-06-03", **{"a.ipynb": "{}"})
    assert read_history(work.folder, ()).code_date == date(2019, 6, 3)


@pytest.mark.parametrize(
    ("author", "subject"),
    [
        (BOT, "Bump x"),
        ("renovate-bot <bot@renovateapp.com>", "x"),
        ("snyk-bot <snyk-bot@snyk.io>", "fix: requirements.txt to reduce vulnerabilities"),
        (PERSON, "Bump tensorflow from 2.0.0 to 2.9.3"),
        ("pre-commit-ci[bot] <x@y>", "x"),
    ],
)
def test_history_skips_bots(work: Work, author: str, subject: str) -> None:
    work.commit("2022-01-01", author, subject, **{"src__train.py": "c"})
    assert read_history(work.folder, ()).code_date == date(2018, 6, 3)


@pytest.mark.parametrize("author", ["Talbot <t@x>", "Abbot Bot Lee <b@x>", "Robot Fan <r@x>"])
def test_history_people_are_no_bots(work: Work, author: str) -> None:
    work.commit("2022-01-01", author, **{"src__train.py": "c"})
    assert read_history(work.folder, ()).code_date == date(2022, 1, 1)


def test_history_finds_the_text_before_a_bot(work: Work) -> None:
    work.commit("2022-01-01", BOT, **{"requirements.txt": "tensorflow==2.9.3\n"})
    work.commit("2022-02-01", BOT, **{"requirements.txt": "tensorflow==2.12\n"})
    history = read_history(work.folder, ("requirements.txt", "missing.txt", "README.md"))
    assert history.bot_files == {"requirements.txt": "tensorflow==1.8\n"}


def test_history_uncommitted_change_is_a_persons(work: Work) -> None:
    work.commit("2022-01-01", BOT, **{"requirements.txt": "tensorflow==2.9.3\n"})
    (work.folder / "requirements.txt").write_text("tensorflow==1.9\n")
    assert read_history(work.folder, ("requirements.txt",)).bot_files == {}


def test_history_bot_file_of_a_bot_has_no_text(work: Work) -> None:
    work.commit("2022-01-01", BOT, **{"new.txt": "tensorflow==2.9.3\n"})
    assert read_history(work.folder, ("new.txt",)).bot_files == {}


def test_history_large_old_text_is_left_out(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    work.commit("2022-01-01", BOT, **{"requirements.txt": "x"})
    monkeypatch.setattr(module, "LARGEST_FILE", 10)
    assert read_history(work.folder, ("requirements.txt",)).bot_files == {}


def test_history_of_many_packs_is_not_read(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    work.git("gc", "-q")
    monkeypatch.setattr(module, "_MOST_PACKS", 0)
    assert "packs" in read_history(work.folder, ()).note


def test_history_packed_repository_is_read(work: Work) -> None:
    work.git("gc", "-q")
    work.git("pack-refs", "--all")
    assert not (work.folder / ".git/refs/heads/main").exists()
    assert read_history(work.folder, ()).code_date == date(2018, 6, 3)


def test_history_detached_head_is_read(work: Work) -> None:
    work.git("checkout", "-q", "HEAD~2")
    assert read_history(work.folder, ()).code_date == date(2018, 3, 1)


def test_history_of_a_folder_below(work: Work) -> None:
    work.commit("2020-01-01", **{"other__x.py": "x"})
    assert read_history(work.folder / "src", ()).code_date == date(2018, 6, 3)


def test_history_of_sha256_repository(tmp_path: Path) -> None:
    work = Work(tmp_path / "work")
    shutil.rmtree(work.folder / ".git")
    work.git("init", "-q", "-b", "main", "--object-format=sha256")
    work.commit("2018-06-03", **{"train.py": "b"})
    assert read_history(work.folder, ()).code_date == date(2018, 6, 3)


def test_history_shallow_clone_is_noted(work: Work, tmp_path: Path) -> None:
    url = work.folder.as_uri()
    work.git("clone", "-q", "--depth=1", url, str(tmp_path / "one"))
    history = read_history(tmp_path / "one", ())
    assert history.code_date == date(2021, 1, 1)
    assert history.note
    work.git("clone", "-q", "--depth=2", url, str(tmp_path / "two"))
    deeper = read_history(tmp_path / "two", ())
    assert deeper.code_date == date(2018, 6, 3)
    work.commit("2021-05-01", **{"src__train.py": "c"})
    work.git("clone", "-q", "--depth=2", url, str(tmp_path / "newer"))
    assert read_history(tmp_path / "newer", ()).note == ""


def test_history_of_a_partial_clone(work: Work, tmp_path: Path) -> None:
    work.git("config", "uploadpack.allowFilter", "true")
    url = work.folder.as_uri()
    work.git("clone", "-q", "--filter=blob:none", "--no-checkout", url, str(tmp_path / "partial"))
    assert read_history(tmp_path / "partial", ()).code_date == date(2018, 6, 3)


def _no_git(work: Work) -> None:
    shutil.rmtree(work.folder / ".git")


def _empty(work: Work) -> None:
    _no_git(work)
    work.git("init", "-q")


def _git_file(work: Work) -> None:
    (work.folder / ".git").rename(work.folder.parent / "real")
    (work.folder / ".git").write_text(f"gitdir: {work.folder.parent / 'real'}\n")


def _git_link(work: Work) -> None:
    (work.folder / ".git").rename(work.folder.parent / "real")
    (work.folder / ".git").symlink_to(work.folder.parent / "real")


def _objects_link(work: Work) -> None:
    (work.folder / ".git/objects").rename(work.folder.parent / "real")
    (work.folder / ".git/objects").symlink_to(work.folder.parent / "real")


def _alternates(work: Work) -> None:
    work.write("objects/info/alternates", "/somewhere/else\n")


def _pack_link(work: Work) -> None:
    (work.folder / ".git/objects/pack/pack-1.idx").symlink_to("/dev/zero")


def _pack_pipe(work: Work) -> None:
    os.mkfifo(work.folder / ".git/objects/pack/pack-1.idx")


def _head_pipe(work: Work) -> None:
    (work.folder / ".git/HEAD").unlink()
    os.mkfifo(work.folder / ".git/HEAD")


def _head_link(work: Work) -> None:
    (work.folder / ".git/HEAD").unlink()
    (work.folder / ".git/HEAD").symlink_to(work.folder / ".git/refs/heads/main")


def _head(text: str) -> Callable[[Work], None]:
    return lambda work: work.write("HEAD", text)


def _loose_pipe(work: Work) -> None:
    """Replace the newest commit, which git opens, by a pipe that nobody writes to."""
    name = work.git("rev-parse", "HEAD")
    path = work.folder / ".git/objects" / name[:2] / name[2:]
    path.unlink()
    os.mkfifo(path)


def _damaged(work: Work) -> None:
    name = work.git("rev-parse", "HEAD")
    path = work.folder / ".git/objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.write_bytes(b"x" * 100)


@pytest.mark.parametrize(
    "spoil",
    [
        _no_git,
        _empty,
        _git_file,
        _git_link,
        _objects_link,
        _alternates,
        _pack_link,
        _pack_pipe,
        _head_pipe,
        _head_link,
        _loose_pipe,
        _damaged,
        _head(""),
        _head("x" * 1_000_000),
        _head("ref: ../../../../etc/passwd\n"),
        _head("ref: refs/heads/../../../x\n"),
        _head("ref: refs/heads/.hidden\n"),
        _head("ref: refs/heads/missing\n"),
        _head("ref: HEAD\n"),
        _head("ref: refs/heads/main; touch x\n"),
        _head("--upload-pack=touch\n"),
        _head("a" * 40 + "\n"),
        _head("A" * 40 + "\n"),
    ],
)
def test_history_hostile_folder_has_a_note(
    work: Work, spoil: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMAND_SECONDS", 2.0)
    spoil(work)
    history = read_history(work.folder, ("requirements.txt",))
    assert history.code_date is None
    assert history.bot_files == {}
    assert history.note


def test_history_huge_packed_references_are_refused(work: Work) -> None:
    (work.folder / ".git/refs/heads/main").unlink()
    with (work.folder / ".git/packed-refs").open("wb") as file:
        file.truncate(1 << 30)
    assert read_history(work.folder, ()).note


def test_history_many_packed_references_are_read(work: Work) -> None:
    name = work.git("rev-parse", "HEAD")
    (work.folder / ".git/refs/heads/main").unlink()
    lines = "".join(f"{name} refs/tags/v{number}\n" for number in range(100_000))
    work.write("packed-refs", f"{lines}{name} refs/heads/main\n")
    assert read_history(work.folder, ()).code_date == date(2018, 6, 3)


def test_history_references_in_a_circle_end(work: Work) -> None:
    work.write("HEAD", "ref: refs/heads/a\n")
    work.write("refs/heads/a", "ref: refs/heads/b\n")
    work.write("refs/heads/b", "ref: refs/heads/a\n")
    assert read_history(work.folder, ()).note


def test_history_shallow_list_is_checked(work: Work) -> None:
    work.write("shallow", "../../x\n")
    assert "shallow is not valid" in read_history(work.folder, ()).note


@pytest.mark.parametrize("day", ["1980-01-01", "2099-01-01"])
def test_history_impossible_date_is_noted(tmp_path: Path, day: str) -> None:
    work = Work(tmp_path / "work")
    work.commit(day, **{"train.py": "b"})
    history = read_history(work.folder, ())
    assert history.code_date is None
    assert history.note


def test_history_without_git_is_noted(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = work.folder.parent / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to(shutil.which("sh") or "")
    monkeypatch.setenv("PATH", str(tools))
    assert "git" in read_history(work.folder, ()).note


def test_history_bomb_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree that holds itself ten times over, at ten levels, has 10,000,000,000 files."""
    monkeypatch.setattr(module, "COMMAND_SECONDS", 2.0)
    monkeypatch.setattr(module, "HISTORY_SECONDS", 5.0)
    work = Work(tmp_path / "work")
    work.commit("2018-01-01", **{"a.txt": "x"})
    blob = work.git("rev-parse", "HEAD:a.txt")
    entry = f"100644 blob {blob}\tf{{}}.txt\n"
    tree = ""
    for _ in range(10):
        text = "".join(entry.format(number) for number in range(10))
        finished = run(["git", "mktree"], cwd=work.folder, text=text, timeout=30)
        tree = finished.output.strip()
        entry = f"040000 tree {tree}\td{{}}\n"
    commit = work.git("commit-tree", "-m", "x", tree)
    work.write("HEAD", f"{commit}\n")
    assert read_history(work.folder, ("requirements.txt",)).code_date is None


def test_history_runs_no_command_of_the_repository(work: Work) -> None:
    canary = work.folder.parent / "canary"
    program = work.folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {canary}\n")
    program.chmod(0o755)
    for name in PROGRAM_SETTINGS:
        work.git("config", name, f"!{program}" if name.startswith("alias") else str(program))
    work.git("config", "log.showSignature", "true")
    work.git("config", "core.hooksPath", str(work.folder))
    work.git("config", "include.path", str(work.folder / "more"))
    work.git("config", "remote.origin.url", f"ext::{program}")
    work.git("config", "remote.origin.promisor", "true")
    work.git("config", "extensions.partialClone", "origin")
    (work.folder / "more").write_text(f"[core]\n\tpager = {program}\n")
    (work.folder / ".gitattributes").write_text("* diff=x filter=x\n")
    work.write("info/attributes", "* diff=x filter=x\n")
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        shutil.copy(program, work.folder / ".git/hooks" / hook)
    (work.folder / "git").symlink_to(program)
    canary.unlink(missing_ok=True)
    history = read_history(work.folder, ("requirements.txt",))
    assert history.code_date == date(2018, 6, 3)
    assert not canary.exists()
    # The canary works: git in the repository itself runs it.
    run(["git", "-C", str(work.folder), "status"], timeout=30)
    assert canary.exists()


def test_history_changes_nothing_in_the_repository(work: Work) -> None:
    def state() -> dict[str, int]:
        return {str(path): path.lstat().st_mtime_ns for path in work.folder.rglob("*")}

    before = state()
    read_history(work.folder, ("requirements.txt",))
    assert state() == before


def test_history_of_odd_paths(work: Work) -> None:
    odd = ("-rf.txt", ":(top)x.txt", "a*b.txt", "x y.txt", "--output=z.txt")
    work.commit("2018-01-01", **dict.fromkeys(odd, "1"))
    work.commit("2022-01-01", BOT, **dict.fromkeys(odd, "2"))
    assert read_history(work.folder, odd).bot_files == dict.fromkeys(odd, "1")
    assert not (work.folder / "z.txt").exists()
