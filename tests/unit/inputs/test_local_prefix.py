"""A CPython prefix: what is accepted, what is refused, what its digest depends on."""

import json
import os
from pathlib import Path

import pytest

from imgbuild.core.errors import InputError
from imgbuild.inputs import local_prefix
from imgbuild.inputs.local_prefix import digest_prefix, find_prefixes, probe, verify_prefix

VERSION = "3.6.15"


class FakePrefix:
    """A prefix whose interpreter is a shell script that prints ``answer``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer: dict[str, object] = {
            "version": VERSION,
            "machine": "x86_64",
            "prefix": str(path),
            "missing": {},
            "libraries": ["/lib/x86_64-linux-gnu/libc.so.6", f"{path}/lib/libpython3.6m.so.1.0"],
        }
        for name in ("lib/libpython3.6m.so.1.0", "lib/python3.6/os.py"):
            self.write(name, name)
        (path / "lib/libpython3.6m.so").symlink_to("libpython3.6m.so.1.0")
        self.says()

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text)

    def says(self, script: str = "", **changes: object) -> None:
        """Change the answer, or the script."""
        self.answer.update(changes)
        answer = f"echo '{json.dumps(self.answer)}'"
        self.write("bin/python3.6", f"#!/bin/sh\n{script or answer}\n")
        (self.path / "bin/python3.6").chmod(0o755)


@pytest.fixture
def prefix(tmp_path: Path) -> FakePrefix:
    return FakePrefix(tmp_path / "home" / "versions" / VERSION)


@pytest.mark.parametrize(
    ("changes", "script", "fault"),
    [
        ({"version": "3.6.9"}, "", r"it is 3\.6\.9, not 3\.6\.15"),
        ({"machine": "riscv64"}, "", "is for riscv64, not for x86_64 or aarch64"),
        ({"missing": {"ssl": "No module named _ssl"}}, "", "cannot import ssl .*libssl-dev"),
        ({"libraries": ["/srv/openssl/lib/libssl.so.1.1"]}, "", "loads /srv/openssl"),
        ({"version": "3.6.9", "missing": {"bz2": "no", "lzma": "no"}}, "", r"3\.6\.9.*bz2.*lzma"),
        ({}, "echo cannot open libpython >&2; exit 126", "fails: cannot open libpython"),
        ({}, "exit 3", "exit code 3"),
        ({}, "echo hello", "does not run as CPython"),
        ({}, "echo '{}'", "does not run as CPython"),
    ],
)
def test_an_unfit_prefix_is_refused_with_all_its_faults(
    prefix: FakePrefix, changes: dict[str, object], script: str, fault: str
) -> None:
    verify_prefix(prefix.path, VERSION)
    prefix.says(script, **changes)
    with pytest.raises(InputError, match=fault):
        verify_prefix(prefix.path, VERSION)
    with pytest.raises(InputError, match="does not exist"):
        verify_prefix(prefix.path / "none", VERSION)


def test_the_probe_names_each_module_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_prefix, "REQUIRED_MODULES", ("zlib", "no_such_module"))
    found = probe(Path(os.path.realpath("/proc/self/exe")))
    assert list(found.missing) == ["no_such_module"]
    assert any("libc.so" in library for library in found.libraries)


def test_prefixes_of_that_version_are_found(
    prefix: FakePrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = prefix.path.parents[2]
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert prefix.path not in find_prefixes(VERSION)
    (home / ".pyenv").symlink_to(prefix.path.parents[1])
    assert home / ".pyenv" / "versions" / VERSION in find_prefixes(VERSION)
    monkeypatch.setenv("PYENV_ROOT", str(prefix.path.parents[1]))
    assert prefix.path in find_prefixes(VERSION)
    (prefix.path / "bin/python3.6").chmod(0o644)
    assert prefix.path not in find_prefixes(VERSION)
    with pytest.raises(InputError, match="you may not run it"):
        verify_prefix(prefix.path, VERSION)
    prefix.says(version="3.6.9")
    assert prefix.path not in find_prefixes(VERSION)


def test_the_digest_is_of_what_images_take_and_of_the_dockerfile(
    prefix: FakePrefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An untouched prefix is not read again."""
    (dockerfile := tmp_path / "Dockerfile").write_text("FROM base")

    def digest() -> str:
        return digest_prefix(prefix.path, VERSION, dockerfile, tmp_path / "cache")

    first = digest()
    assert first.startswith("sha256:")
    for left_out in ("unittest/test/x.py", "__pycache__/y.pyc", "site-packages/z.py", "config/a.o"):
        prefix.write(f"lib/python3.6/{left_out}", "other")
    prefix.write("bin/other", "other")
    with monkeypatch.context() as patch:
        patch.setattr(local_prefix, "verify_prefix", lambda *_: pytest.fail("it was read"))
        assert digest() == first
    os.utime(prefix.path / "lib/python3.6/os.py")
    assert digest() == first
    (stamp,) = (tmp_path / "cache" / "cpython").iterdir()
    stamp.write_text("damaged")
    assert digest() == first
    prefix.write("lib/python3.6/os.py", "other")
    second = digest()
    dockerfile.write_text("FROM other")
    assert len({first, second, digest()}) == 3
