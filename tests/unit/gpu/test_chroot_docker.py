"""`docker` in a chroot: what the suites ask for is understood, and the rest is refused."""

import json
from pathlib import Path
from typing import Any

import chroot_docker
import pytest
from chroot_docker import FIRST, REFUSED, Chroot

IMAGE = {"Id": "sha256:1", "Config": {"Env": ["PATH=/opt/bin", "A=b=c"], "User": ""}}
USERS = "root:x:0:0:root:/root:/bin/sh\nmpiuser:x:1000:1000::/home/mpi:/bin/sh\n"


@pytest.fixture
def chroot(tmp_path: Path) -> Chroot:
    """Give an image whose files are one."""
    (tmp_path / "image.json").write_text(json.dumps([IMAGE]))
    (tmp_path / "rootfs/etc").mkdir(parents=True)
    (tmp_path / "rootfs/etc/passwd").write_text(USERS)
    return Chroot(tmp_path)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Give what is printed, mounted and run, which is only noted."""
    noted: list[Any] = []
    monkeypatch.setattr(chroot_docker, "print", noted.append, raising=False)
    monkeypatch.setattr("subprocess.run", lambda words, **_: noted.append(words))
    monkeypatch.setattr("os.execve", lambda _, *call: noted.append(call))
    return noted


@pytest.mark.parametrize(
    ("user", "userspec", "home"),
    [
        ("", [], "/root"),
        ("--user mpiuser", ["--userspec=mpiuser"], "/home/mpi"),
        ("--user 1000:1000", ["--userspec=1000:1000"], "/home/mpi"),
        ("--user 12345:0", ["--userspec=12345:0"], "/"),
    ],
)
def test_a_command_has_the_images_variables_and_its_users_home(
    chroot: Chroot, noted: list[Any], user: str, userspec: list[str], home: str
) -> None:
    chroot.call(f"exec --interactive {user} {FIRST} /bin/sh --user x".split())
    ((argv, variables),) = noted
    assert argv[1:] == [*userspec, f"{chroot.folder}/rootfs", "/bin/sh", "--user", "x"]
    assert variables == {"HOME": home, "PATH": "/opt/bin", "A": "b=c"}


def test_a_stranger_gets_a_read_only_mount_of_its_own(
    chroot: Chroot, noted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "--detach --network=none --read-only --tmpfs=/run --user=12345:12345"
    chroot.call(f"run {options} sha256:1 sleep infinity".split())
    *mounts, container = noted
    root = chroot.root_of(container)
    assert mounts == [
        ["mount", "--rbind", f"{chroot.folder}/rootfs", str(root)],
        ["mount", "-o", "remount,bind,ro", str(root)],
        ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{root}/run"],
    ]
    monkeypatch.setattr(chroot_docker, "home_of", lambda *_: "/")  # nothing is mounted here
    chroot.call(f"exec {container} id".split())
    assert noted[-1][0][1:] == ["--userspec=12345:12345", str(root), "id"]
    chroot.call(f"rm --force --volumes {FIRST} imgbuild-lab-gone {container}".split())
    assert noted[-1] == ["umount", "--recursive", str(root)]
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
    ],
)
def test_what_needs_an_engine_is_refused(chroot: Chroot, command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        chroot.call(command.split())
    assert ended.value.code == REFUSED
