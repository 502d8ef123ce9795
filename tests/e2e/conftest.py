"""The command line against a real engine, with the settings of this checkout.

Tests that break something work on a copy of the checkout whose images have another repository, so
that nothing they do can touch the images a user has.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imgbuild.engine.client import DockerEngine
from imgbuild.engine.endpoint import resolve_host
from imgbuild.project import Project
from imgbuild.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imgbuild.engine.protocol import Engine

ROOT = Path(__file__).resolve().parents[2]
COPY_REPOSITORY = "imgbuild-e2e/tensorflow"


@dataclass(frozen=True)
class Checkout:
    """A checkout and its own state folder; ``run`` is what a user types."""

    root: Path
    state: Path
    host: str | None

    @property
    def environment(self) -> dict[str, str]:
        """The user's environment, with state (reports, logs, locks) kept apart."""
        docker = {"DOCKER_HOST": self.host} if self.host else {}
        return {**os.environ, **docker, "XDG_STATE_HOME": str(self.state), "COLUMNS": "200"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", "from imgbuild.cli import main; main()", *arguments]

    def run(self, *arguments: str, timeout: int = 1800) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def docker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def plan(self, tf: str) -> dict[str, Any]:
        result = self.run("build", "--tf", tf, "--plan", "--json")
        assert result.returncode == 0, result.stderr
        found: dict[str, Any] = json.loads(result.stdout)[0]
        return found

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in a file of the checkout; what is rendered from it is rendered."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} no longer holds {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        result = self.run("render")
        assert result.returncode == 0, result.stderr


@pytest.fixture(scope="session")
def host() -> str | None:
    return resolve_host(load_settings(Project(ROOT).settings).engine)


@pytest.fixture(scope="session")
def engine(host: str | None) -> Iterator[Engine]:
    connected = DockerEngine(host)
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def checkout(host: str | None, state: Path) -> Checkout:
    """Return this checkout itself: what it builds is what users get, and stays."""
    return Checkout(ROOT, state, host)


@pytest.fixture
def copy(tmp_path: Path, host: str | None, engine: Engine) -> Iterator[Checkout]:
    """Give a copy to break things in; its images are removed again."""
    root = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("images", "tests/image"):
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    for file in ("matrix.yaml", "imgbuild.local.yaml"):
        if (ROOT / file).exists():
            shutil.copy(ROOT / file, root / file)
    made = Checkout(root, tmp_path / "state", host)
    made.edit("matrix.yaml", "repository: imgbuild/tensorflow", f"repository: {COPY_REPOSITORY}")
    # The tests break images of the stack that needs nothing but what every machine reaches.
    made.edit("matrix.yaml", "defaults: {stack: ubuntu", "defaults: {stack: debian")
    before = {image.id for image in engine.images("imgbuild.name")}
    yield made
    for image in engine.images("imgbuild.name"):
        for tag in image.tags:
            if tag.startswith(COPY_REPOSITORY):
                engine.untag(tag)
        if image.id not in before:
            engine.discard(image.id)
