"""`docker` in a chroot: what the suites ask for is understood, and the rest is refused."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chroot_docker
import pytest
from chroot_docker import FIRST, REFUSED, Chroot, home_of

IMAGE = {"Id": "sha256:1", "Config": {"Env": ["PATH=/opt/bin", "A=b=c"], "User": ""}}
Said = Callable[[str], str]


@pytest.fixture
def chroot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chroot:
    """Give an image whose files are one; mounts and commands are only noted."""
    (tmp_path / "image.json").write_text(json.dumps([IMAGE]))
    passwd = tmp_path / "rootfs/etc/passwd"
    passwd.parent.mkdir(parents=True)
    passwd.write_text("root:x:0:0:root:/root:/bin/sh\nmpiuser:x:1000:1000::/home/mpi:/bin/sh\n")

    def say(text: str) -> None:
        sys.stdout.write(text)

    monkeypatch.setattr(chroot_docker, "mount", lambda *words: say(f"mount {' '.join(words)}\n"))
    monkeypatch.setattr("os.execve", lambda *call: say(json.dumps(call[1:])))
    return Chroot(tmp_path)


@pytest.fixture
def said(chroot: Chroot, capsys: pytest.CaptureFixture[str]) -> Said:
    """Return how to get what a command prints."""

    def call(command: str) -> str:
        chroot.call(command.split())
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("user", "home"),
    [("0", "/root"), ("mpiuser", "/home/mpi"), ("1000:1000", "/home/mpi"), ("12345:0", "/")],
)
def test_a_home_is_the_images(chroot: Chroot, user: str, home: str) -> None:
    assert home_of(user, chroot.folder / "rootfs") == home


def test_a_command_has_the_images_variables_and_no_other(chroot: Chroot, said: Said) -> None:
    argv, variables = json.loads(said(f"exec --interactive {FIRST} /bin/sh --user x"))
    assert argv[1:] == [f"{chroot.folder}/rootfs", "/bin/sh", "--user", "x"]
    assert variables == {"HOME": "/root", "PATH": "/opt/bin", "A": "b=c"}
    argv, variables = json.loads(said(f"exec --user mpiuser {FIRST} id"))
    assert argv[1:] == ["--userspec=mpiuser", f"{chroot.folder}/rootfs", "id"]


def test_a_stranger_gets_a_read_only_mount_of_its_own(
    chroot: Chroot, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "--detach --network=none --read-only --tmpfs=/tmp --user=12345:12345"
    *mounts, container = said(f"run {options} sha256:1 sleep infinity").splitlines()
    root = chroot.root_of(container)
    assert mounts == [
        f"mount --rbind {chroot.folder}/rootfs {root}",
        f"mount -o remount,bind,ro {root}",
        f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",  # noqa: S108 - the container's
    ]
    monkeypatch.setattr(chroot_docker, "home_of", lambda *_: "/")  # nothing is mounted here
    argv, variables = json.loads(said(f"exec {container} id"))
    assert argv[1:] == ["--userspec=12345:12345", str(root), "id"]
    assert variables["HOME"] == "/"
    unmounted: list[Any] = []
    monkeypatch.setattr("subprocess.run", lambda words, **_: unmounted.append(words))
    said(f"rm --force --volumes {FIRST} imgbuild-lab-gone {container}")
    assert unmounted == [["umount", "--recursive", str(root)]]
    assert not root.parent.exists()
    assert chroot.root_of(FIRST).is_dir()


@pytest.mark.parametrize(
    "command",
    [
        "network create --internal x",
        "run --detach --network=x sha256:1 sleep infinity",
        "run --detach --memory=1g sha256:1 sleep infinity",
        "run --detach sha256:1 mpirun",
        "stop first",
        "cp first:/a -",
        "kill",
    ],
)
def test_what_needs_an_engine_is_refused(chroot: Chroot, command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        chroot.call(command.split())
    assert ended.value.code == REFUSED
