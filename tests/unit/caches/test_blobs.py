"""Blobs while they are written: what a killed process left goes, what is being written stays."""

import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgbuild.caches.blobs import BlobStore

WRITER = """
import sys
from pathlib import Path
from imgbuild.caches.blobs import BlobStore

class Endless:
    def read(self, size=-1):
        print("reads", flush=True)
        sys.stdin.readline()
        return b"x"

BlobStore(Path(sys.argv[1])).add(Endless(), "x/y")
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Give a process that is in the middle of a blob in ``tmp_path``."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reads\n"
        yield process
        process.kill()


def _parts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def _add(folder: Path) -> Path:
    store = BlobStore(folder)
    return store.path(store.add(io.BytesIO(b"content"), "x/y"))


def test_what_a_killed_process_left_goes_with_the_next_write(
    tmp_path: Path, writer: subprocess.Popen[str]
) -> None:
    (part,) = _parts(tmp_path)
    writer.kill()
    writer.wait()
    assert part.exists()
    blob = _add(tmp_path)
    assert [*tmp_path.iterdir()] == [blob]


def test_what_another_process_writes_stays(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    before = _parts(tmp_path)
    assert writer.poll() is None
    assert _add(tmp_path).read_bytes() == b"content"
    assert _parts(tmp_path) == before


def test_a_file_that_was_swept_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = tempfile.mkstemp, list[str]()

    def swept(*, dir: Path, prefix: str) -> tuple[int, str]:  # noqa: A002 - mkstemp's own name
        handle, name = real(dir=str(dir), prefix=prefix)
        made.append(name)
        if len(made) == 1:
            Path(name).unlink()
        return handle, name

    monkeypatch.setattr("imgbuild.caches.blobs.tempfile.mkstemp", swept)
    assert _add(tmp_path).read_bytes() == b"content"
    assert len(made) == 2
