"""The `docker` command that the suites use, for one image whose files lie in a folder.

Where there is no engine, `chroot_run.py` puts this on PATH under that name. It knows what suites of
a single machine ask for: commands in the container, what `docker inspect` says, the files of the
image, and more containers of it, each the same files mounted once more. It refuses the rest, as
docker does with exit code 125: networks and signals need an engine. A limit on system calls is
ignored.

The variable IMGBUILD_CHROOT names the folder, which has `rootfs`, and `image.json` as `docker image
inspect` prints it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import NoReturn

REFUSED = 125
#: The container under test: the root file system itself.
FIRST = "first"
#: Options of `docker run` that change nothing here; a chroot shares the machine's network, or none.
IGNORED = {"detach", "name", "hostname", "label", "security-opt", "rm", "env", "volume"}
ROOT = "0"


def refuse(what: str) -> NoReturn:
    """End as docker does with what it cannot do."""
    print(f"docker: {what} is not possible without an engine, in a chroot", file=sys.stderr)
    raise SystemExit(REFUSED)


def split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options before the first other word, and that word and all after it."""
    options = {}
    while words and words[0].startswith("--"):
        name, equals, value = words[0][2:].partition("=")
        words = words[1:]
        if name == "user" and not equals:
            value, words = words[0], words[1:]
        options[name] = value
    return options, words


class Chroot:
    """The image, and the containers that were started of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = json.loads((folder / "image.json").read_text(encoding="utf-8"))[0]

    def call(self, words: list[str]) -> None:
        """Do what one `docker` command asks for."""
        if words[0] == "exec":
            options, (container, *command) = split(words[1:])
            self.enter(container, command, options.get("user"))
        elif words[0] == "run":
            self.run(words[1:])
        elif words[1:2] == ["inspect"] and words[0] in ("container", "image"):
            first = {"Image": self.image["Id"], "Config": {"Labels": {}}}
            print(json.dumps([self.image if words[0] == "image" else first]))
        elif words[0] == "rm":
            self.remove(split(words[1:])[1])
        elif words[:2] != ["network", "rm"]:
            refuse(" ".join(words[:2]))

    def run(self, words: list[str]) -> None:
        """List files at once, or start a container: for others than `sleep` there is no process."""
        options, (_, *command) = split(words)
        if "entrypoint" in options:
            self.enter(FIRST, [options["entrypoint"], *command])
        mounted = {"read-only", "tmpfs", "user"}
        unknown = options.keys() - IGNORED - mounted - {"network"}
        if unknown or options.get("network", "none") != "none" or command[:1] != ["sleep"]:
            refuse(f"run {' '.join(words)}")
        container = uuid.uuid4().hex
        root = self.root_of(container)
        root.mkdir(parents=True)
        mount("--rbind", str(self.root_of(FIRST)), str(root))
        if "read-only" in options:
            mount("-o", "remount,bind,ro", str(root))
        if "tmpfs" in options:
            mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{root}{options['tmpfs']}")
        (root.parent / "user").write_text(options.get("user", ROOT), encoding="utf-8")
        print(container)

    def enter(self, container: str, command: list[str], user: str | None = None) -> NoReturn:
        """Become a command in a container, with the variables that the image gives it."""
        root = self.root_of(container)
        if user is None and container != FIRST:
            user = (root.parent / "user").read_text(encoding="utf-8")
        user = user or self.image["Config"].get("User") or ROOT
        pairs = [pair.partition("=") for pair in self.image["Config"]["Env"] or []]
        variables = {"HOME": home_of(user, root), **{name: value for name, _, value in pairs}}
        program = shutil.which("chroot") or "/usr/sbin/chroot"
        userspec = () if user == ROOT else (f"--userspec={user}",)
        os.execve(program, [program, *userspec, str(root), *command], variables)

    def remove(self, containers: list[str]) -> None:
        """Unmount containers by their ids; names are those of containers that are gone."""
        for container in containers:
            root = self.root_of(container)
            if container != FIRST and root.is_dir():
                subprocess.run(["umount", "--recursive", str(root)], check=True)
                root.rmdir()
                shutil.rmtree(root.parent)

    def root_of(self, container: str) -> Path:
        """Return the root of a container's files."""
        if container == FIRST:
            return self.folder / "rootfs"
        return self.folder / "containers" / container / "rootfs"


def home_of(user: str, root: Path) -> str:
    """Return a user's home as the image's /etc/passwd has it, and / for others, as docker does."""
    name = user.partition(":")[0]
    lines = (root / "etc/passwd").read_text(encoding="utf-8").splitlines()
    rows = [line.split(":") for line in lines]
    return next((row[5] for row in rows if name in (row[0], row[2])), "/")


def mount(*words: str) -> None:
    """Mount for this process and its parents up to `chroot_run.py`, and nobody else."""
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    Chroot(Path(os.environ["IMGBUILD_CHROOT"])).call(sys.argv[1:])
