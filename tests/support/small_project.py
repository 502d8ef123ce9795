"""A checkout whose images are built in a second and tested in two, for faults at many moments.

A build writes a layer of many files on the real base image, so that there is an export; the second
suite starts a container and a network, as the real ones do. `pause` slows one place down.
"""

import json
import re
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from imgbuild.core.files import is_locked
from imgbuild.core.user_folders import cache_dir
from imgbuild.dockerfile.labels import REPOSITORY as REPOSITORY_LABEL
from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.suites.container import CONTAINER_LABEL
from support.checkout import WORKER, Checkout
from support.copied_checkout import SUITES, TEMPLATE, copied_checkout, substitute_cpython, tiny

REPOSITORY = f"imgbuild-small-{WORKER}/tensorflow"
#: What is built: two images, for faults between them, or the first alone.
NAMES = ("tf-1.10-cpu-debian", "tf-1.11-cpu-debian")
BUILD = ("build", "--tf", "1.10", "--tf", "1.11", "--jobs", "2")
ONE = ("build", "--tf", "1.10")
#: Where a template can be changed for a test.
FINAL = "FROM os AS final\n"
#: Each of the comments is a place that can be slowed down.
_TEMPLATE = """\
FROM base AS os
ENV WORD=first
RUN --network=none sleep 0 # first
FROM os AS final
RUN --network=none mkdir /files && cd /files && head -c 8000000 /dev/urandom > bytes && \\
    seq 3000 | xargs touch && sleep 0 # middle
RUN --network=none echo {{ image.name }} > /name && cd /files && seq 6000 | split -l 1 -a 4 - && \\
    echo $((9000 + 1)) files && sleep 0 # last
"""
_CONFTEST = '''\
import signal
import subprocess
import sys
import uuid

import pytest

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def docker(*arguments):
    found = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


@pytest.fixture
def second(request):
    """Give another container of the image, on a network of its own."""
    first = request.config.getoption("--hosts").removeprefix("docker://")
    of = docker("inspect", "--format", '{{.Image}} {{index .Config.Labels "LABEL"}}', first)
    image, name = of.split()
    made = f"small-{uuid.uuid4().hex}"
    label = f"--label=LABEL={name}"
    docker("network", "create", "--internal", label, made)
    docker("run", "-d", "--name", made, label, f"--network={made}", image, "sleep", "600")
    yield made
    docker("rm", "--force", made)
    docker("network", "rm", made)
'''.replace("LABEL", CONTAINER_LABEL)
_FILES = '''\
"""The files are whole."""

def test_files(host):
    assert host.check_output("ls /files | wc -l").strip() == "9001"
    assert host.check_output("stat -c %s /files/bytes").strip() == "8000000"
'''
_SECOND = '''\
"""A second container can be started."""

import time

from conftest import docker

def test_second(second):
    time.sleep(0)  # suite
    assert docker("exec", second, "cat", "/name").startswith("tf-")

def test_end():
    time.sleep(0)  # end
'''


@dataclass(frozen=True)
class SmallProject(Checkout):
    """A checkout of small images, and what became of them on its engine."""

    def pause(self, place: str, seconds: float) -> None:
        """Let a build or test wait at a place; 0 takes the wait away."""
        for path in (self.root / TEMPLATE, self.root / SUITES / "test_second.py"):
            text = path.read_text(encoding="utf-8")
            paused = re.sub(rf"(sleep[ (])\S+?(\)? +# {place}\b)", rf"\g<1>{seconds}\2", text)
            path.write_text(paused, encoding="utf-8")
        self.render()

    def build(self, *options: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return self.run(*BUILD, *options, code=code, timeout=300)

    def named(self) -> dict[str, StoredImage]:
        """Return the images that have a name of this project, by name."""
        with closing(Engine(self.host)) as engine:
            return {tag: image for image in engine.find_named(REPOSITORY) for tag in image.tags}

    def ids(self) -> dict[str, str]:
        return {tag: image.id for tag, image in self.named().items()}

    def images(self) -> set[str]:
        return {*self.printed("images", "--all", "--quiet", "--no-trunc").split()}

    def complete(self, image: StoredImage) -> bool:
        count = ("sh", "-c", "ls /files | wc -l; cat /name")
        said = self.docker("run", "--rm", "--network=none", image.id, *count).stdout.split()
        return said == ["9001", image.labels["imgbuild.name"]]

    def tested(self, image: StoredImage) -> bool:
        """Return whether every suite passed on the image, as far as this machine remembers."""
        path = self.state / "imgbuild" / "reports" / f"{image.id.removeprefix('sha256:')}.json"
        suites = json.loads(path.read_text(encoding="utf-8"))["suites"] if path.exists() else {}
        verdicts = {name: suite["verdict"] for name, suite in suites.items()}
        return verdicts == dict.fromkeys(("files", "second"), "passed")

    def check_names(self) -> int:
        """Fail unless every image with a name is complete and tested; return how many names."""
        named = self.named()
        for image in {image.id: image for image in named.values()}.values():
            assert self.complete(image), f"{image.tags} is not complete"
            assert self.tested(image), f"{image.tags} has not passed"
        return len(named)

    def finish(self, count: int, *command: str) -> None:
        """Build; fail unless that many names are right then, and nothing is left."""
        self.run(*command)
        assert self.check_names() == count
        assert self.left() == []

    def in_suite(self) -> bool:
        return bool(self.printed("ps", "-q", "--filter=name=^small-"))

    def forget_logs(self) -> None:
        for log in (self.state / "imgbuild" / "logs").glob("*"):
            log.unlink()

    def left(self) -> list[str]:
        """Return what is left of builds and tests: containers, networks, work folders, locks."""
        place = self.state / "imgbuild"
        with closing(Engine(self.host)) as engine:
            listed = sorted(self.started(engine))
        listed += [str(path) for path in (place / "work").glob("*")]
        locks = sorted((place / "locks").glob("*.lock"))
        return listed + [str(path) for path in locks if is_locked(path)]

    def forget(self) -> None:
        """Take away the names and the images, so that the next build begins anew."""
        own = f"--filter=label={REPOSITORY_LABEL}={REPOSITORY}"
        images = self.printed("images", "-q", "--no-trunc", own).split()
        if images:
            self.docker("rmi", "--force", *{*images})


def small_project(folder: Path, host: str, cache: Path | None = None) -> SmallProject:
    """Return a new small project in ``folder`` for the engine at ``host``."""
    project = SmallProject(folder / "checkout", folder / "state", host, cache)
    files = tiny(_TEMPLATE, conftest=_CONFTEST, files=_FILES, second=_SECOND)
    copied_checkout(project.root, REPOSITORY, files=files, host=host)
    substitute_cpython(project.root, cache or cache_dir().parent)
    project.render()
    return project
