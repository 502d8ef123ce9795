"""A checkout whose images are built in a second and tested in two, for faults at many moments.

The matrix, the locks and the whole of imgbuild are the real ones; the templates and the suites are
small. A build writes a layer of many files on the real base image, so that there is an export; the
second suite starts a container and a network, as the real ones do. `pause` slows one place down.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml
from checkout import Checkout
from copied_checkout import (
    CONFTEST,
    LABELS,
    SUITES,
    TEMPLATE,
    copied_checkout,
    substitute_cpython,
)

from imgbuild.engine.client import Engine
from imgbuild.engine.types import StoredImage
from imgbuild.files import is_locked
from imgbuild.project import cache_dir
from imgbuild.suites.container import CONTAINER_LABEL

REPOSITORY = "imgbuild-small/tensorflow"
#: What is built: two images, for faults between them.
NAMES = ("tf-1.10-cpu-debian", "tf-1.11-cpu-debian")
BUILD = ("build", "--tf", "1.10", "--tf", "1.11", "--jobs", "2")
#: The places that can be slowed down, by seconds.
PLACES = ("first", "middle", "last", "suite", "end")
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
_SUITES = {
    "files": '''\
"""The files are whole."""

def test_files(host):
    assert host.check_output("ls /files | wc -l").strip() == "9001"
    assert host.check_output("stat -c %s /files/bytes").strip() == "8000000"
''',
    "second": '''\
"""A second container can be started."""

import time

from conftest import docker

def test_second(second):
    time.sleep(0)  # suite
    assert docker("exec", second, "cat", "/name").startswith("tf-")

def test_end():
    time.sleep(0)  # end
''',
}


@dataclass(frozen=True)
class SmallProject(Checkout):
    """A checkout of small images, and what became of them on its engine."""

    def pause(self, place: str, seconds: float) -> None:
        """Let a build or test wait at one of `PLACES`; 0 takes the wait away."""
        for path in (self.root / TEMPLATE, self.root / SUITES / "test_second.py"):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            path.write_text("".join(_paused(line, place, seconds) for line in lines))
        self.render()

    def build(self, *options: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return self.run(*BUILD, *options, code=code, timeout=300)

    def named(self) -> dict[str, StoredImage]:
        """Return the images that have a name of this project, by name."""
        engine = Engine(self.host)
        try:
            images = engine.named(REPOSITORY)
        finally:
            engine.close()
        return {tag: image for image in images for tag in image.tags}

    def complete(self, image: StoredImage) -> bool:
        """Return whether an image holds everything that its Dockerfile writes."""
        count = ("sh", "-c", "ls /files | wc -l; cat /name")
        said = self.docker("run", "--rm", "--network=none", image.id, *count).stdout.split()
        return said == ["9001", image.labels["imgbuild.name"]]

    def tested(self, image: StoredImage) -> bool:
        """Return whether every suite passed on the image, as far as this machine remembers."""
        path = self.state / "imgbuild" / "reports" / f"{image.id.removeprefix('sha256:')}.json"
        suites = yaml.safe_load(path.read_text(encoding="utf-8"))["suites"] if path.exists() else {}
        verdicts = {name: suite["verdict"] for name, suite in suites.items()}
        return verdicts == dict.fromkeys(_SUITES, "passed")

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

    def in_step(self) -> bool:
        """Return whether a build is in the step `middle`, or was since `forget_logs`."""
        return "# middle" in self.log()

    def in_suite(self) -> bool:
        return len(self.docker("ps", "-q").stdout.split()) > 1

    def forget_logs(self) -> None:
        for log in (self.state / "imgbuild" / "logs").glob("*"):
            log.unlink()

    def left(self) -> list[str]:
        """Return what is left of builds and tests: containers, networks, work folders, locks."""
        place = self.state / "imgbuild"
        of = f"--filter=label={CONTAINER_LABEL}"
        listed = self.docker("ps", "-aq", of).stdout.split()
        listed += self.docker("network", "ls", "-q", of).stdout.split()
        listed += [str(path) for path in (place / "work").glob("*")]
        locks = sorted((place / "locks").glob("*.lock"))
        return listed + [str(path) for path in locks if is_locked(path)]

    def forget(self) -> None:
        """Take away the names and the images, so that the next build begins anew."""
        images = self.docker("images", "-q", "--no-trunc", "--filter=label=imgbuild.name")
        if images.stdout.split():
            self.docker("rmi", "--force", *set(images.stdout.split()))


def small_project(folder: Path, host: str) -> SmallProject:
    """Return a new small project in ``folder`` for the engine at ``host``."""
    root = folder / "checkout"
    files = {
        TEMPLATE: _TEMPLATE + LABELS,
        f"{SUITES}/conftest.py": CONFTEST + _CONFTEST,
        **{f"{SUITES}/test_{name}.py": text for name, text in _SUITES.items()},
    }
    copied_checkout(root, REPOSITORY, files=files, host=host)
    substitute_cpython(root, cache_dir().parent)
    project = SmallProject(root, folder / "state", host)
    project.render()
    return project


def _paused(line: str, place: str, seconds: float) -> str:
    start, mark, rest = line.rpartition(f"# {place}")
    if not mark:
        return line
    words = start.rstrip()
    head = words[: words.rindex("sleep") + len("sleep")]
    return (
        f"{head}({seconds})  {mark}{rest}"
        if "time.sleep" in words
        else f"{head} {seconds} {mark}{rest}"
    )
