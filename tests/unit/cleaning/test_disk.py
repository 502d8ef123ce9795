"""The cache and the state on disk: what goes, and what a running process keeps."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from imgbuild.build.context import image_locks
from imgbuild.cleaning.busy import busy_images, worker_on
from imgbuild.cleaning.disk import disk_size, find_caches
from imgbuild.cleaning.state import find_locks, find_logs, find_reports, find_work, unlock
from imgbuild.files import stored_folder

if TYPE_CHECKING:
    import pytest

NAME = "tf-2.2-cpu-debian"


def _write(path: Path, size: int = 10_000, *, days: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    then = time.time() - days * 24 * 3600
    os.utime(path, (then, then))
    return path


def _dead() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_every_folder_of_the_cache_is_one_kind(tmp_path: Path) -> None:
    _write(tmp_path / "downloads" / "a")
    _write(tmp_path / "something-new" / "b")
    downloads, new = find_caches(tmp_path, {})
    assert (downloads.kind, new.kind) == ("cache/downloads", "cache/something-new")
    assert downloads.size >= 10_000
    assert downloads.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["something-new"]


def test_while_a_build_runs_every_cache_is_kept(tmp_path: Path) -> None:
    _write(tmp_path / "downloads" / "a")
    (finding,) = find_caches(tmp_path, {"default-x": "77"})
    assert finding.kept == "process 77 is building or testing"


def test_a_cache_is_kept_if_a_build_has_begun_since_it_was_shown(tmp_path: Path) -> None:
    _write(tmp_path / "downloads" / "a")
    busy: dict[str, str] = {}
    (finding,) = find_caches(tmp_path, busy, lambda: busy)
    busy["default-x"] = "77"
    assert not finding.remove()
    assert (tmp_path / "downloads" / "a").exists()


def test_what_is_lost_with_a_folder_is_said(tmp_path: Path) -> None:
    for name in ("downloads", "rendered", "sizes", "wheels"):
        _write(tmp_path / name / "a")
    assert [finding.why for finding in find_caches(tmp_path, {})] == [
        "files by their sha256; made or fetched again when needed",
        "which Dockerfiles were found to be the rendered ones; seen again in seconds",
        "sizes of images and layers; measured again when asked for, minutes an image",
        "compiled Horovod wheels; compiled again when needed, minutes each",
    ]


def test_a_cache_is_kept_while_something_is_made_in_it(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    kept: list[str | None] = []
    removed: list[bool] = []

    def make(_: Path) -> None:
        (finding,) = find_caches(cache, {})
        kept.append(finding.kept)
        removed.append(finding.remove())

    stored_folder(cache / "base" / "one", make, lambda _: False)
    assert kept[0] is not None
    assert "is held" in kept[0]
    assert removed == [False]
    (later,) = find_caches(cache, {})
    assert later.kept is None


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    first = _write(tmp_path / "a", 100_000)
    (tmp_path / "b").hardlink_to(first)
    assert 100_000 <= disk_size(tmp_path) < 150_000
    assert disk_size(first) >= 100_000


def test_work_folders_of_dead_processes_go_and_of_living_ones_stay(tmp_path: Path) -> None:
    state, cache = tmp_path / "state", tmp_path / "cache"
    dead = _write(state / "work" / f"{_dead()}-bake-x" / "bake.json").parent
    _write(state / "work" / f"{os.getpid()}-bake-x" / "bake.json")
    _write(state / "work" / "notes" / "mine")
    half = _write(cache / "base" / ".debian-12.tmp-abc" / "new" / "x").parents[1]
    going = _write(cache / ".removed-1-downloads" / "x").parent
    findings = list(find_work(state, cache))
    assert {one.name for one in findings} == {str(dead), str(half), str(going)}
    assert all(one.remove() for one in findings)
    assert list(find_work(state, cache)) == []


def test_a_folder_that_is_being_made_stays(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    seen: list[int] = []
    stored_folder(
        cache / "base" / "one",
        lambda _: seen.append(len(list(find_work(tmp_path / "state", cache)))),
        lambda _: False,
    )
    assert seen == [0]


def test_scratch_folders_go_when_they_are_old_and_this_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    name = f"imgbuild-{os.getuid()}-debian-12-0123456789ab-"
    for folder, hours in ((f"{name}aaaaaaaa", 2), (f"{name}bbbbbbbb", 0), ("imgbuild-0-mine", 2)):
        (tmp_path / folder).mkdir()
        then = time.time() - hours * 3600
        os.utime(tmp_path / folder, (then, then))
    found = {one.name for one in find_work(tmp_path / "state", tmp_path / "cache")}
    assert {name for name in found if name.startswith(str(tmp_path))} == {
        str(tmp_path / f"{name}aaaaaaaa")
    }


def test_old_logs_are_shown_as_one(tmp_path: Path) -> None:
    _write(tmp_path / "logs" / "old.log", days=31)
    _write(tmp_path / "logs" / "older.log", days=90)
    young = _write(tmp_path / "logs" / "young.log", days=29)
    (finding,) = find_logs(tmp_path)
    assert finding.name == f"2 files in {tmp_path / 'logs'}"
    assert finding.remove()
    assert [*(tmp_path / "logs").iterdir()] == [young]


def test_verdicts_go_when_old_and_their_image_is_gone(tmp_path: Path) -> None:
    kept = [
        _write(tmp_path / "reports" / "aa.json", days=90),
        _write(tmp_path / "reports" / "bb.json", days=1),
    ]
    _write(tmp_path / "reports" / "cc.json", days=90)
    (finding,) = find_reports(tmp_path, ["sha256:aa"])
    assert finding.remove()
    assert sorted((tmp_path / "reports").iterdir()) == kept


def test_locks_go_when_nobody_holds_them(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    with image_locks(["free"], None, locks):
        pass
    with image_locks([NAME], "unix:///run/docker.sock", locks):
        (finding,) = find_locks(tmp_path)
        assert finding.remove()
        (held,) = locks.iterdir()
        assert not unlock(held)
        busy = busy_images(tmp_path)
        assert worker_on(NAME, busy) == str(os.getpid())
        assert worker_on("free", busy) is None
    assert busy_images(tmp_path) == {}


def test_a_lock_that_was_removed_while_it_was_opened_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, `clean` removes the file: it is made and locked anew."""
    opened = Path.open
    raced: list[Path] = []

    def open_and_lose(path: Path, *arguments: str, **options: str) -> object:
        file = opened(path, *arguments, **options)  # type: ignore[call-overload]
        if not raced:
            raced.append(path)
            path.unlink()
        return file

    monkeypatch.setattr(Path, "open", open_and_lose)
    with image_locks([NAME], None, tmp_path / "locks"):
        (lock,) = (tmp_path / "locks").iterdir()
        assert not unlock(lock)
    assert len(raced) == 1
