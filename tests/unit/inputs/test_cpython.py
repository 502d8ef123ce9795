"""A CPython prefix: what is found fit or unfit, what is copied, what may not stay in it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from imgbuild.errors import CheckFailedError, InputError, MachineError
from imgbuild.inputs import cpython, cpython_prefix
from imgbuild.inputs.cpython import find_prefixes, relocate_prefix
from imgbuild.inputs.cpython_prefix import probe, verify_prefix
from imgbuild.inputs.machine_paths import check_no_paths, replace_paths
from imgbuild.inputs.prefix_copy import copy_prefix
from imgbuild.inputs.tree_digest import set_times, tree_digest, tree_fingerprint

VERSION = "3.6.15"


class FakePrefix:
    """A prefix whose interpreter is a shell script that answers what it is told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer: dict[str, object] = {
            "version": VERSION,
            "machine": "x86_64",
            "prefix": str(path),
            "recorded": str(path),
            "build_folder": "/tmp/python-build.1/Python-3.6.15",  # noqa: S108
            "missing": {},
            "libraries": ["/lib/x86_64-linux-gnu/libc.so.6", f"{path}/lib/libpython3.6m.so.1.0"],
        }
        for name, content in self._files().items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(content)
        self.link("bin/python", "python3.6")
        self.link("bin/pydoc3", "pydoc3.6")
        self.link("bin/idle3", "idle3.6")
        self.link("lib/libpython3.6m.so", f"{path}/lib/libpython3.6m.so.1.0")
        self.write_interpreter()

    def _files(self) -> dict[str, str]:
        shebang = f"#!{self.path}/bin/python3.6\n"
        library = "lib/python3.6"
        return {
            "bin/pydoc3.6": shebang,
            "bin/pip3.6": shebang,
            "bin/idle3.6": shebang,
            "bin/other-tool": "",
            "include/python3.6m/patchlevel.h": '#define PY_VERSION "3.6.15"',
            "lib/libpython3.6m.so.1.0": "",
            "lib/libother.so": "",
            "lib/pkgconfig/python-3.6.pc": f"prefix={self.path}\n",
            "share/man/man1/python3.6.1": "",
            f"{library}/os.py": "",
            f"{library}/_sysconfigdata_m_linux.py": f"'{self.path}/lib' "
            "'/tmp/python-build.1/Python-3.6.15'",
            f"{library}/__pycache__/os.cpython-36.pyc": "",
            f"{library}/test/test_os.py": "",
            f"{library}/unittest/case.py": "",
            f"{library}/unittest/test/test_case.py": "",
            f"{library}/lib2to3/pytree.py": "",
            f"{library}/lib2to3/tests/test_pytree.py": "",
            f"{library}/idlelib/idle.py": "",
            f"{library}/tkinter/ttk.py": "",
            f"{library}/lib-dynload/_tkinter.cpython-36m.so": "",
            f"{library}/lib-dynload/_testcapi.cpython-36m.so": "",
            f"{library}/lib-dynload/math.cpython-36m.so": "",
            f"{library}/config-3.6m/libpython3.6m.a": "",
            f"{library}/config-3.6m/Makefile": f"prefix= {self.path}\n",
            f"{library}/ensurepip/_bundled/pip.whl": "",
            f"{library}/site-packages/pip/__init__.py": "",
        }

    def link(self, name: str, to: str) -> None:
        """Make a symbolic link in the prefix."""
        (self.path / name).symlink_to(to)

    def write_interpreter(self, script: str | None = None) -> None:
        """Let the interpreter run ``script``, or print the answer, whose prefix is its own."""
        own = '$(cd "$(dirname "$0")/.." && pwd)'
        text = json.dumps(self.answer).replace(str(self.path), "@OWN@")
        default = f"echo '{text}' | sed \"s,@OWN@,{own},g\""
        path = self.path / "bin" / "python3.6"
        path.write_text(f"#!/bin/sh\n{script or default}\n")
        path.chmod(0o755)

    def says(self, **changes: object) -> None:
        """Change the answer."""
        self.answer.update(changes)
        self.write_interpreter()


@pytest.fixture
def prefix(tmp_path: Path) -> FakePrefix:
    return FakePrefix(tmp_path / "home" / "versions" / VERSION)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def names(tree: Path) -> set[str]:
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*") if not path.is_dir()}


def test_complete_prefix_is_accepted(prefix: FakePrefix) -> None:
    assert verify_prefix(prefix.path, VERSION).version == VERSION


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"version": "3.6.9"}, r"it is 3\.6\.9, not 3\.6\.15"),
        ({"machine": "aarch64"}, "not x86_64"),
        ({"missing": {"ssl": "No module named _ssl"}}, "cannot import ssl .*libssl-dev"),
        ({"libraries": ["/srv/openssl/lib/libssl.so.1.1"]}, "loads /srv/openssl"),
    ],
)
def test_unfit_prefix_is_refused(
    prefix: FakePrefix, changes: dict[str, object], fault: str
) -> None:
    prefix.says(**changes)
    with pytest.raises(InputError, match=fault):
        verify_prefix(prefix.path, VERSION)


def test_all_faults_are_told_at_once(prefix: FakePrefix) -> None:
    prefix.says(version="3.6.9", missing={"bz2": "no", "lzma": "no"})
    with pytest.raises(InputError, match=r"3\.6\.9.*bz2.*lzma"):
        verify_prefix(prefix.path, VERSION)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("echo cannot open libpython >&2; exit 127", "fails: cannot open libpython"),
        ("exit 3", "exit status 3"),
        ("echo hello", "does not run as CPython"),
        ("echo '{}'", "does not run as CPython"),
    ],
)
def test_broken_interpreter_is_refused(prefix: FakePrefix, script: str, fault: str) -> None:
    prefix.write_interpreter(script)
    with pytest.raises(InputError, match=fault):
        verify_prefix(prefix.path, VERSION)


def test_absent_prefix_is_refused(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        verify_prefix(tmp_path / "nothing", VERSION)
    with pytest.raises(InputError, match=r"no CPython 3\.6\.15"):
        relocate_prefix(tmp_path / "nothing", VERSION, cache)


def test_probe_names_each_module_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a real interpreter: the one that runs this test."""
    monkeypatch.setattr(cpython_prefix, "REQUIRED_MODULES", ("zlib", "no_such_module"))
    python = Path(os.path.realpath("/proc/self/exe"))
    found = probe(python)
    assert list(found.missing) == ["no_such_module"]
    assert found.version.startswith("3.")
    assert any("libc.so" in library for library in found.libraries)
    assert tmp_path.exists()


def test_prefixes_of_that_version_only(prefix: FakePrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(prefix.path.parent.parent))
    assert prefix.path in find_prefixes(VERSION)
    prefix.says(version="3.6.9")
    assert prefix.path not in find_prefixes(VERSION)
    prefix.write_interpreter("exit 1")
    assert prefix.path not in find_prefixes(VERSION)
    assert find_prefixes("3.0.99") == []


def test_home_is_searched_without_pyenv_root(
    prefix: FakePrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    home = prefix.path.parents[2]
    (home / ".pyenv").symlink_to(prefix.path.parent.parent)
    monkeypatch.setenv("HOME", str(home))
    assert home / ".pyenv" / "versions" / VERSION in find_prefixes(VERSION)


def test_copy_takes_what_an_image_needs(prefix: FakePrefix, tmp_path: Path) -> None:
    target = tmp_path / "tree"
    copy_prefix(prefix.path, "3.6", target)
    assert names(target) == {
        "bin/python", "bin/python3", "bin/python3.6", "bin/pydoc3", "bin/pydoc3.6",
        "include/python3.6m/patchlevel.h",
        "lib/libpython3.6m.so", "lib/libpython3.6m.so.1.0", "lib/pkgconfig/python-3.6.pc",
        "lib/python3.6/os.py", "lib/python3.6/_sysconfigdata_m_linux.py",
        "lib/python3.6/unittest/case.py", "lib/python3.6/lib2to3/pytree.py",
        "lib/python3.6/lib-dynload/math.cpython-36m.so",
        "lib/python3.6/config-3.6m/Makefile", "lib/python3.6/ensurepip/_bundled/pip.whl",
    }  # fmt: skip
    assert list((target / "lib/python3.6/site-packages").iterdir()) == []
    assert (target / "lib/libpython3.6m.so").readlink() == Path("libpython3.6m.so.1.0")


def test_modes_do_not_depend_on_the_prefix(prefix: FakePrefix, tmp_path: Path) -> None:
    (prefix.path / "lib/libpython3.6m.so.1.0").chmod(0o555)
    (prefix.path / "lib/python3.6/os.py").chmod(0o600)
    copy_prefix(prefix.path, "3.6", tmp_path / "tree")
    assert (tmp_path / "tree/lib/libpython3.6m.so.1.0").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "tree/lib/python3.6/os.py").stat().st_mode & 0o777 == 0o644


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a strip and a patchelf on the PATH that do nothing; the fake has no ELF files."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in ("strip", "patchelf"):
        (folder / tool).write_text("#!/bin/sh\n")
        (folder / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.usefixtures("tools")
def test_relocated_prefix_names_only_the_target(prefix: FakePrefix, cache: Path) -> None:
    tree = relocate_prefix(prefix.path, VERSION, cache).path
    library = tree / "lib/python3.6"
    record = (library / "_sysconfigdata_m_linux.py").read_text()
    assert record == "'/opt/python/lib' '/usr/src/python'"
    assert (library / "config-3.6m/Makefile").read_text() == "prefix= /opt/python\n"
    assert (tree / "lib/pkgconfig/python-3.6.pc").read_text() == "prefix=/opt/python\n"
    assert (tree / "bin/pydoc3.6").read_text() == "#!/opt/python/bin/python3.6\n"


@pytest.mark.usefixtures("tools")
def test_relocation_is_deterministic_and_cached(
    prefix: FakePrefix, cache: Path, tmp_path: Path
) -> None:
    first = relocate_prefix(prefix.path, VERSION, cache)
    other = relocate_prefix(prefix.path, VERSION, tmp_path / "other")
    assert first.digest == other.digest
    assert first.digest == tree_digest(first.path)
    assert relocate_prefix(prefix.path, VERSION, cache) == first


@pytest.mark.usefixtures("tools")
def test_touched_copy_is_made_again(prefix: FakePrefix, cache: Path) -> None:
    first = relocate_prefix(prefix.path, VERSION, cache)
    (first.path / "lib/python3.6/os.py").write_text("broken")
    assert relocate_prefix(prefix.path, VERSION, cache) == first
    assert (first.path / "lib/python3.6/os.py").read_text() == ""


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("change", ["rebuilt", "target", "epoch", "code"])
def test_what_it_is_made_from_decides_its_place(
    prefix: FakePrefix, cache: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = relocate_prefix(prefix.path, VERSION, cache)
    if change == "rebuilt":
        (prefix.path / "include/python3.6m/patchlevel.h").write_text('"3.6.15+"')
    if change == "code":
        monkeypatch.setattr(cpython, "RELOCATION_VERSION", 2)
    target = "/opt/other" if change == "target" else "/opt/python"
    epoch = 1 if change == "epoch" else cpython.DEFAULT_EPOCH
    second = relocate_prefix(prefix.path, VERSION, cache, target, epoch=epoch)
    assert second.path != first.path


@pytest.mark.usefixtures("tools")
def test_times_are_the_epoch(prefix: FakePrefix, cache: Path) -> None:
    tree = relocate_prefix(prefix.path, VERSION, cache, epoch=1767225600).path
    times = {path.lstat().st_mtime for path in [tree, *tree.rglob("*")]}
    assert times == {1767225600.0}


@pytest.mark.usefixtures("tools")
def test_copy_that_borrows_from_the_old_place_is_refused(prefix: FakePrefix, cache: Path) -> None:
    # The script keeps naming the old prefix through a variable, as a stale search path would.
    prefix.says()
    script = (prefix.path / "bin/python3.6").read_text().removeprefix("#!/bin/sh\n")
    half = len(str(prefix.path)) // 2
    old = f"'{str(prefix.path)[:half]}''{str(prefix.path)[half:]}'"
    stale = script.replace("@OWN@/lib/libpython", "@OLD@/lib/libpython")
    prefix.write_interpreter(f'{stale.rstrip()} | sed "s,@OLD@,"{old}","')
    with pytest.raises(CheckFailedError, match="from the old place"):
        relocate_prefix(prefix.path, VERSION, cache)
    assert not list((cache / "cpython").glob("3*"))


def test_missing_tools_are_this_machines_fault(
    prefix: FakePrefix, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(MachineError, match="binutils patchelf"):
        relocate_prefix(prefix.path, VERSION, cache)


@pytest.mark.parametrize("place", ["text", "binary", "link"])
def test_name_that_stays_is_found(tmp_path: Path, place: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    if place == "link":
        (tree / "file").symlink_to("/home/someone/py/lib")
    else:
        content = b"\x7fELF\0/home/someone/py\0" if place == "binary" else b"/home/someone/py/bin"
        (tree / "file").write_bytes(content)
    with pytest.raises(CheckFailedError, match="1 files: file"):
        check_no_paths(tree, {"/home/someone/py": "/opt/python"})
    check_no_paths(tree, {"/home/another": "/opt/python"})


def test_common_prefix_is_replaced_only_in_records(tmp_path: Path) -> None:
    (tmp_path / "mimetypes.py").write_text("/usr/local/etc/mime.types")
    (tmp_path / "_sysconfigdata.py").write_text("/usr/local/lib")
    replace_paths(tmp_path, {"/usr/local": "/opt/python"})
    check_no_paths(tmp_path, {"/usr/local": "/opt/python"})
    assert (tmp_path / "mimetypes.py").read_text() == "/usr/local/etc/mime.types"
    assert (tmp_path / "_sysconfigdata.py").read_text() == "/opt/python/lib"


def test_digest_sees_paths_modes_links_contents_but_no_times(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    file, link = tree / "a", tree / "l"
    file.write_text("one")
    link.symlink_to("a")
    seen = [tree_digest(tree)]
    set_times(tree, 1)
    assert tree_digest(tree) == seen[0]
    file.write_text("two")
    seen.append(tree_digest(tree))
    file.chmod(0o755)
    seen.append(tree_digest(tree))
    link.unlink()
    link.symlink_to("b")
    seen.append(tree_digest(tree))
    file.rename(tree / "b")
    seen.append(tree_digest(tree))
    assert len(set(seen)) == len(seen)


def test_fingerprint_sees_times(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    set_times(tmp_path, 1)
    before = tree_fingerprint(tmp_path)
    set_times(tmp_path, 2)
    assert tree_fingerprint(tmp_path) != before


def test_a_real_prefix_runs_from_anywhere(tmp_path: Path) -> None:
    found = [path for version in (VERSION, "3.7.16", "3.8.18") for path in find_prefixes(version)]
    if not found:
        pytest.skip("no CPython 3.6.15, 3.7.16 or 3.8.18 prefix on this machine")
    version = found[0].name
    relocated = relocate_prefix(found[0], version, tmp_path / "cache")
    moved = tmp_path / "moved"
    relocated.path.rename(moved)
    program = "import ssl, sys, sysconfig; print(sys.prefix, sysconfig.get_config_var('LIBDIR'))"
    result = subprocess.run(
        [moved / "bin" / "python3", "-I", "-c", program],
        check=True, capture_output=True, text=True, env={"LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert result.stdout.split() == [str(moved), "/opt/python/lib"]
    said = subprocess.run([moved / "bin/python", "--version"], check=True, capture_output=True)
    assert said.stdout.decode() == f"Python {version}\n", "PY_VERSION shares its bytes with PREFIX"
