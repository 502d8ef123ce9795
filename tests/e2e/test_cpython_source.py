"""The stage that compiles CPython, on a real source: that of the base's own Python, from Debian.

TensorFlow has no wheel for this version, so only the stages up to the interpreter are built.
"""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from imgbuild.engine.client import Engine
from imgbuild.matrix.images import minor_of
from standin.__main__ import open_context
from standin.workbench import load_debian
from support.checkout import Checkout

pytestmark = pytest.mark.nightly

VERSION = "3.11.2"
TAG = "imgbuild-e2e/python:source"
#: The interpreter in its place, as the images have it.
_STAGE = """
FROM os AS e2e
COPY --link --from=python /out/ /
"""
MODULES = "bz2, ctypes, curses, dbm, hashlib, lzma, readline, sqlite3, ssl, uuid, zlib"


@pytest.fixture
def base(copy: Checkout) -> str:
    """Return the bootstrapped base, which the engine has."""
    return load_debian(open_context(copy.project)).reference


@pytest.fixture
def archive(copy: Checkout, base: str, tmp_path: Path) -> Path:
    """Return CPython's source as Debian's archive has it."""
    # The release itself, not its updates: its sources are there as long as it is.
    script = (
        r"sed -n 's/^deb \(.* bookworm main\)$/deb-src \1/p' /etc/apt/sources.list"
        " > /etc/apt/sources.list.d/source.list"
        " && apt-get -q update && cd /out && apt-get -q source --download-only python3.11"
    )
    folder = tmp_path / "served"
    folder.mkdir()
    copy.docker("run", "--rm", "-v", f"{folder}:/out", base, "sh", "-c", script, code=0)
    (found,) = folder.glob("python3.11_*.orig.tar.*")
    return found


def _change(copy: Checkout, archive: Path, sha256: str) -> None:
    """Let the Dockerfile of an image compile this source; no lock has a TensorFlow for it."""
    path = _dockerfile(copy)
    text = path.read_text(encoding="utf-8")
    for old, new in (
        (r"(?<=source=)Python-3\.6\.15\.tar\.xz", archive.name),
        (r"(?<=compile )3\.6\b", minor_of(VERSION)),
        (r"(?<=SHA256_CPYTHON=)\w{64}", sha256),
    ):
        text, count = re.subn(old, new, text)
        assert count == 1, f"the Dockerfile no longer has {old} once"
    text = re.sub(r"\bpython3\.6\b", f"python{minor_of(VERSION)}", text)
    path.write_text(text + _STAGE, encoding="utf-8")


def _dockerfile(copy: Checkout) -> Path:
    return copy.root / "images" / "dockerfiles" / "tf-1.10-cpu-debian" / "Dockerfile"


def _build(
    copy: Checkout, base: str, archive: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    images = copy.root / "images"
    contexts = (f"base=docker-image://{base}", f"downloads={archive.parent}")
    build = ("buildx", "build", "--builder=default", "--progress=plain", "--load")
    given = (f"--build-context={context}" for context in contexts)
    target = ("--target=e2e", f"--tag={TAG}", f"--file={_dockerfile(copy)}")
    epoch = "--build-arg=SOURCE_DATE_EPOCH=1700000000"
    return copy.docker(*build, *given, *target, epoch, *options, str(images), timeout=1200)


def test_cpython_is_compiled_from_its_source_and_twice_the_same(
    copy: Checkout, engine: Engine, base: str, archive: Path
) -> None:
    _change(copy, archive, hashlib.sha256(archive.read_bytes()).hexdigest())
    result = _build(copy, base, archive)
    assert result.returncode == 0, result.stderr[-3000:]
    try:
        program = f"import {MODULES}, sys; print(sys.version.split()[0], sys.prefix)"
        ran = copy.printed("run", "--rm", TAG, "/opt/python/bin/python", "-c", program)
        assert ran.split() == [VERSION, "/opt/python"]
        # Found beside the binary, not through an absolute path: the prefix could be moved.
        moved = "mv /opt/python /srv/python && /srv/python/bin/python3 -c 'import ssl, _ctypes'"
        copy.docker("run", "--rm", TAG, "sh", "-c", moved, code=0)
        absent = "! ls -d /opt/python/lib/python3.11/test /opt/python/lib/*.a 2>/dev/null"
        copy.docker("run", "--rm", TAG, "sh", "-c", absent, code=0)
        layers = engine.need(TAG).layers
        assert _build(copy, base, archive, "--no-cache").returncode == 0
        assert engine.need(TAG).layers == layers
    finally:
        engine.untag(TAG)


def test_a_source_with_another_sha256_is_not_compiled(
    copy: Checkout, base: str, archive: Path
) -> None:
    _change(copy, archive, "0" * 64)
    result = _build(copy, base, archive)
    assert result.returncode != 0
    assert "/run/python.tar: FAILED" in result.stderr
