"""A checkout as end-to-end tests use it: commands are run in it as a user types them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copied_checkout import SOURCE, TEMPLATE

from imgbuild.engine.client import Engine
from imgbuild.project import Project
from imgbuild.suites.container import CONTAINER_LABEL, place_of

ROOT = SOURCE
COPY_REPOSITORY = "imgbuild-e2e/tensorflow"
#: Where inputs come from does not change what tests find; settings, log format and project do.
_KEPT = ("IMGBUILD_MIRRORS",)


def not_imgbuilds(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that make imgbuild do something else."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("IMGBUILD_") or name in _KEPT
    }


@dataclass(frozen=True)
class Base:
    """An image of the matrix that is there: ``options`` and ``selection`` make imgbuild mean it."""

    tag: str
    options: tuple[str, ...]
    selection: tuple[str, ...]


@dataclass(frozen=True)
class Checkout:
    """A checkout and its own state folder; ``run`` is what a user types."""

    root: Path
    state: Path
    host: str | None

    @property
    def project(self) -> Project:
        return Project(self.root)

    @property
    def environment(self) -> dict[str, str]:
        """The user's environment without imgbuild's, with state (reports, logs, locks) apart."""
        docker = {"DOCKER_HOST": self.host} if self.host else {}
        own = {"XDG_STATE_HOME": str(self.state), "COLUMNS": "200"}
        return {**not_imgbuilds(os.environ), **docker, **own}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", "from imgbuild.cli import main; main()", *arguments]

    def run(
        self, *arguments: str, code: int | None = 0, timeout: int = 1800
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end, which has this exit code (None: any)."""
        result = self._run(self.command(*arguments), code, timeout)
        assert "Traceback" not in result.stderr, result.stderr
        return result

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def docker(self, *arguments: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
        return self._run(["docker", *arguments], code, 300)

    def _run(
        self, command: list[str], code: int | None, timeout: int
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert code in {None, result.returncode}, result.stdout + result.stderr
        return result

    def started(self, engine: Engine) -> set[str]:
        """Return the containers and networks of this checkout's test runs, not of others'."""
        mine = f"@{place_of(self.state / 'imgbuild')}"
        found = {one.id: one.labels for one in engine.containers(CONTAINER_LABEL)}
        found |= {one.id: one.labels for one in engine.networks(CONTAINER_LABEL)}
        return {one for one, labels in found.items() if labels[CONTAINER_LABEL].endswith(mine)}

    def plan(self, tf: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.run("build", "--tf", tf, "--plan", "--json").stdout
        )[0]
        return found

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in a file of the checkout; what is rendered from it is rendered."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} no longer holds {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.render()

    def render(self) -> None:
        self.run("render")

    def say(self, word: str) -> None:
        """Change what small images say, so that they have to be built again."""
        template = self.root / TEMPLATE
        text = template.read_text(encoding="utf-8")
        said = re.sub("^ENV WORD=.*$", f"ENV WORD={word}", text, flags=re.MULTILINE)
        template.write_text(said, encoding="utf-8")
        self.render()

    def log(self) -> str:
        """Return the logs of all builds so far."""
        logs = sorted((self.state / "imgbuild" / "logs").glob("*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)
