"""The base image with a fake mmdebstrap: made, reused, made again, failed, killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from imgbuild.core.errors import MachineError
from imgbuild.core.settings import Settings
from imgbuild.inputs import bootstrap
from imgbuild.inputs.base import Base
from imgbuild.inputs.bootstrap import (
    base_recipe,
    bootstrap_base,
    find_bootstrapped,
    recipe_digest,
)
from imgbuild.matrix.images import Image, all_images
from imgbuild.matrix.model import Matrix
from support.waiting import is_running, wait_for

ROOT = Path(__file__).resolve().parents[3]
NAME = "tf-2.2-cpu-debian"
#: Writes a tiny tar, fails, or hangs, as FAKE_MMDEBSTRAP says; its child is what apt would be.
MMDEBSTRAP = r"""
[ "$1" != --unshare-helper ] || exit 1
printf '%s\n' "$*" >> "$FAKE_RECORD"
echo "I: running apt-get update..." >&2
mkdir "$TMPDIR/mmdebstrap.chroot"
case $FAKE_MMDEBSTRAP in
    fail) echo "E: apt-get update failed: Could not connect" >&2; exit 25 ;;
    nothing) exit 0 ;;
    filter) python3 </dev/null ;;
    hang) sleep 60 & echo "$$ $!" > "$FAKE_RECORD.pids"; wait ;;
esac
for target; do :; done
echo "$FAKE_ARCHIVE_STATE" > "$TMPDIR/made-at"
tar -cf "$target" -C "$TMPDIR" --owner=0 --group=0 --mtime="@$SOURCE_DATE_EPOCH" made-at
echo "I: success" >&2
"""


class Machine:
    """A machine with the fake on its PATH, a keyring, and a cache."""

    def __init__(self, folder: Path, image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
        self.image = image
        self.scratch = folder / "scratch"
        self.record = folder / "calls"
        self._monkeypatch = monkeypatch
        self.scratch.mkdir()
        (folder / "bin").mkdir()
        self.keyring = folder / "keyring.gpg"
        self.keyring.touch()
        monkeypatch.setitem(bootstrap.KEYRINGS, "debian", (self.keyring, "debian-archive-keyring"))
        monkeypatch.setattr("imgbuild.core.process._SYSTEM_FOLDERS", "/nonexistent")
        monkeypatch.setenv("TMPDIR", str(self.scratch))
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        monkeypatch.setenv("FAKE_RECORD", str(self.record))
        # newuidmap is wanted of everyone but root.
        for name, script in (("mmdebstrap", MMDEBSTRAP), ("newuidmap", "exit 0")):
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / "bin" / name).chmod(0o755)
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        self.use_cache(folder / "cache")
        self.behave("succeed")

    def use_cache(self, folder: Path) -> None:
        self._monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        self.bases = folder / "imgbuild" / "base"

    def behave(self, behaviour: str) -> None:
        self._monkeypatch.setenv("FAKE_MMDEBSTRAP", behaviour)

    def bootstrap(self, *, refresh: bool = False) -> Base:
        return bootstrap_base(self.image, Settings(), refresh=refresh)

    def find(self) -> Base | None:
        return find_bootstrapped(self.image, Settings())

    def log(self) -> Path:
        """Return the last log."""
        state = Path(os.environ["XDG_STATE_HOME"])
        return max(state.glob("imgbuild/logs/*-inputs.log"))

    def calls(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []

    def rests(self) -> list[Path]:
        """Return what should not be there when nothing runs."""
        temporary = [p for p in self.bases.glob(".*") if p.is_dir()]
        return [*temporary, *self.scratch.iterdir()]


@pytest.fixture
def machine(tmp_path: Path, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, images[NAME], monkeypatch)


def test_bootstrap_uses_the_systems_python(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("system", "version-manager"):
        program = tmp_path / folder / "python3"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\necho {folder} >> "$FAKE_RECORD.python"\n')
        program.chmod(0o755)
    monkeypatch.setattr(bootstrap, "_SYSTEM_PROGRAMS", f"{tmp_path / 'system'}:/usr/bin:/bin")
    monkeypatch.setenv("PATH", str(tmp_path / "version-manager"), prepend=os.pathsep)
    machine.behave("filter")
    machine.bootstrap()
    assert Path(f"{machine.record}.python").read_text().split() == ["system"]


def test_recipe_digest_covers_version_and_options(
    images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = base_recipe(images[NAME], Settings())
    assert {*recipe} == {"os_name", "distribution", "suite", "epoch"}
    changes = [{name: "other"} for name in (*recipe, "snapshot")]
    digests = [recipe_digest({**recipe, **change}) for change in changes]
    digests.append(recipe_digest(recipe))
    monkeypatch.setattr(bootstrap, "RECIPE_VERSION", bootstrap.RECIPE_VERSION + 1)
    digests.append(recipe_digest(recipe))
    monkeypatch.setattr(bootstrap, "MMDEBSTRAP_OPTIONS", ("--variant=minbase",))
    assert len({*digests, recipe_digest(recipe)}) == 8


def test_recipes_of_earlier_versions_keep_their_digest() -> None:
    """A base image that was made is found again."""
    recipe = {"os_name": "debian-12", "distribution": "debian", "suite": "bookworm"}
    digest = recipe_digest({**recipe, "epoch": 1767225600})
    assert digest[:12] == "94018b32ff13"


def test_a_base_is_made_from_the_archive_alone_and_found_again(machine: Machine) -> None:
    assert machine.find() is None
    layout = machine.bootstrap()
    assert layout.reference == f"imgbuild/base:debian-12-{str(layout.digest)[7:19]}"
    assert machine.log().read_text().splitlines() == ["I: running apt-get update...", "I: success"]
    assert machine.rests() == []
    (call,) = machine.calls()
    options = ("--variant=apt", "--mode=auto", "path-exclude=/usr/share/man/*", "keyring.gpg")
    for option in (*options, *bootstrap.IDLE_HOOKS):
        assert option in call
    assert "://" not in call, "the mirror is mmdebstrap's own choice"
    garble_layer(layout)
    assert machine.find() == layout, "its layer is not read"
    assert machine.bootstrap() == machine.bootstrap() == layout
    assert len(machine.calls()) == 2
    (Path(str(layout.layout)) / "manifest.json").write_text("[]")
    assert machine.find() is None


def garble_layer(layout: Base) -> None:
    """Change one byte of the layer, but neither size nor time."""
    blobs = Path(str(layout.layout), "blobs", "sha256").iterdir()
    blob = next(path for path in blobs if path.read_bytes().startswith(b"\x1f\x8b"))  # gzip
    content, status = bytearray(blob.read_bytes()), blob.stat()
    content[len(content) // 2] ^= 1
    blob.write_bytes(content)
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_refresh_takes_up_the_archive_of_now(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machine.bootstrap()
    assert machine.bootstrap(refresh=True) == first, "the archive stood still"
    monkeypatch.setenv("FAKE_ARCHIVE_STATE", "later")
    second = machine.bootstrap(refresh=True)
    assert second.layout == first.layout
    assert second.reference != first.reference
    assert machine.bootstrap() == second


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [("fail", r"status 25.*Could not connect"), ("nothing", "could not make the base")],
)
def test_failure_tells_the_last_lines_and_the_log(
    machine: Machine, behaviour: str, said: str
) -> None:
    """Also of a run that ends well and wrote nothing."""
    machine.behave(behaviour)
    with pytest.raises(MachineError, match=said) as caught:
        machine.bootstrap()
    assert str(machine.log()) in str(caught.value)
    assert not list(machine.bases.glob("debian*"))
    assert machine.rests() == []


def test_apt_timeouts_of_a_base_are_not_in_the_image(tmp_path: Path) -> None:
    parts = tmp_path / "etc/apt/apt.conf.d"
    parts.mkdir(parents=True)
    hooks = dict(hook.split("=", 1) for hook in bootstrap.IDLE_HOOKS)
    subprocess.run(["sh", "-c", hooks["--setup-hook"], "sh", tmp_path], check=True)
    (file,) = parts.iterdir()
    expected = [f"Acquire::{kind}::Timeout 60;" for kind in ("http", "https")]
    assert file.read_text(encoding="utf-8").splitlines() == expected
    subprocess.run(["sh", "-c", hooks["--customize-hook"], "sh", tmp_path], check=True)
    assert [*parts.iterdir()] == []


def test_missing_tools_come_with_the_command(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(machine.scratch))
    machine.keyring.unlink()
    with pytest.raises(MachineError, match=r"apt-get install -y debian-archive-keyring mmdebstrap"):
        machine.bootstrap()


def test_an_interrupt_in_mid_run_leaves_nothing(machine: Machine) -> None:
    """A run for another cache meanwhile leaves it alone."""
    process, pids = start(machine)
    at_work, own = [*machine.scratch.iterdir()], machine.bases.parents[1]
    machine.use_cache(own.with_name("other-cache"))
    machine.behave("succeed")
    machine.bootstrap()
    assert len(at_work) == 1
    assert machine.rests() == at_work
    machine.use_cache(own)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    wait_for(lambda: not any(map(is_running, pids)))
    assert machine.rests() == []


def test_a_killed_run_leaves_nothing_that_looks_whole(machine: Machine) -> None:
    process, pids = start(machine)
    process.kill()
    process.wait()
    os.killpg(pids[0], signal.SIGKILL)
    assert machine.rests() != []
    assert not list(machine.bases.glob("debian*"))
    machine.behave("succeed")
    machine.bootstrap()
    assert machine.rests() == []


def start(machine: Machine) -> "tuple[subprocess.Popen[bytes], list[int]]":
    """Start a process that makes the base of this machine; return it when mmdebstrap hangs."""
    machine.behave("hang")
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from imgbuild.inputs.bootstrap import KEYRINGS, bootstrap_base\n"
        "from imgbuild.matrix.load import load_matrix\n"
        "from imgbuild.matrix.selection import find_image\n"
        "from imgbuild.core.settings import Settings\n"
        "KEYRINGS['debian'] = (Path(sys.argv[1]), '')\n"
        f"image = find_image(load_matrix(Path(sys.argv[2])), {NAME!r})\n"
        "bootstrap_base(image, Settings())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, machine.keyring, ROOT / "matrix.yaml"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    pids_file = machine.record.with_name("calls.pids")
    wait_for(lambda: pids_file.exists() and bool(pids_file.read_text()))
    return process, [int(pid) for pid in pids_file.read_text().split()]


@pytest.mark.parametrize("runs", [True, False])
def test_a_base_for_another_architecture_needs_an_emulator(
    machine: Machine, matrix: Matrix, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: bool
) -> None:
    """Whether the machine has one is asked of arch-test, before anything is made."""
    amd64 = machine.bootstrap()
    (machine.image,) = (
        image for image in all_images(matrix, "arm64") if image.name == "tf-2.15-cpu-debian-arm64"
    )
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    tester = tmp_path / "bin" / "arch-test"
    tester.write_text(f'#!/bin/sh\n[ "$*" = arm64 ] && exit {0 if runs else 1}\n')
    tester.chmod(0o755)
    if not runs:
        with pytest.raises(MachineError, match=r"debian-12-arm64 .* apt-get install .*qemu-user"):
            machine.bootstrap()
        assert len(machine.calls()) == 1
        return
    base = machine.bootstrap()
    assert base.reference.startswith("imgbuild/base:debian-12-arm64-")
    assert base.layout != amd64.layout
    assert "--architectures=arm64" in machine.calls()[-1]
    assert "--architectures=amd64" not in machine.calls()[-1]
    configs = [path.read_bytes() for path in (base.layout or tmp_path).glob("blobs/sha256/*")]
    assert any(b'"architecture":"arm64"' in content for content in configs)
    assert machine.find() == base
