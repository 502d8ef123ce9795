"""A checkout as end-to-end tests use it: commands are run in it as a user types them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imgbuild.core.project import Project
from imgbuild.engine.client import Engine
from imgbuild.suites.container import CONTAINER_LABEL, machine_digest
from support.copied_checkout import SOURCE, TEMPLATE

ROOT = SOURCE
#: Of several workers (pytest -n) each has names of its own.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "alone")
COPY_REPOSITORY = f"imgbuild-e2e-{WORKER}/tensorflow"
#: Where inputs come from does not change what tests find; settings and project do.
_KEPT = ("IMGBUILD_MIRRORS",)
#: What the examples print that learn a line; the last digits differ from run to run.
LEARNT = re.compile(r"learnt: y = (1\.9\d|2\.0\d) x \+ (0\.9\d|1\.0\d)")


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


Bases = Callable[[str], Base]  #: gives an image of the matrix by its name


@dataclass(frozen=True)
class Checkout:
    """A checkout with a state folder of its own, and a cache too, unless it is the user's."""

    root: Path
    state: Path
    host: str | None
    cache: Path | None = None

    @property
    def project(self) -> Project:
        return Project(self.root)

    @property
    def environment(self) -> dict[str, str]:
        """The user's environment without imgbuild's, with state (reports, logs, locks) apart."""
        docker = {"DOCKER_HOST": self.host} if self.host else {}
        cache = {"XDG_CACHE_HOME": str(self.cache)} if self.cache else {}
        own = {"XDG_STATE_HOME": str(self.state), "COLUMNS": "200"}
        # The tests' own checkout may belong to another user, and must be named then.
        named = {"IMGBUILD_PROJECT": str(ROOT)} if self.root == ROOT else {}
        return {**not_imgbuilds(os.environ), **docker, **cache, **own, **named}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", "from imgbuild.cli import main; main()", *arguments]

    def run(
        self, *arguments: str, code: int | None = 0, timeout: int = 1800
    ) -> subprocess.CompletedProcess[str]:
        """Run what a user types to its end, which has this exit code (None: any)."""
        result = self.typed(self.command(*arguments), code, timeout)
        assert "Traceback" not in result.stderr, result.stderr
        return result

    def json(self, *arguments: str, code: int | None = 0, timeout: int = 1800) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code, timeout=timeout).stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def docker(
        self, *arguments: str, code: int | None = None, timeout: int = 300
    ) -> subprocess.CompletedProcess[str]:
        return self.typed(["docker", *arguments], code, timeout)

    def printed(self, *arguments: str, timeout: int = 300) -> str:
        """Return what a `docker` command prints that must succeed."""
        return self.docker(*arguments, code=0, timeout=timeout).stdout.strip()

    def typed(
        self, command: list[str], code: int | None = 0, timeout: int = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run any command in the checkout to its end, which has this exit code (None: any)."""
        result = subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        said = f"{command}\n{result.stdout}{result.stderr}"
        assert code in {None, result.returncode}, said
        return result

    def started(self, engine: Engine) -> set[str]:
        """Return the containers and networks of this checkout's test runs, not of others'."""
        mine = f"@{machine_digest(self.state / 'imgbuild')}"
        labelled = [*engine.containers(CONTAINER_LABEL), *engine.networks(CONTAINER_LABEL)]
        return {one.id for one in labelled if one.labels[CONTAINER_LABEL].endswith(mine)}

    def plan(self, tf: str) -> dict[str, Any]:
        return dict(self.json("build", "--tf", tf, "--dry-run")[0])

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
        text = (self.root / TEMPLATE).read_text(encoding="utf-8")
        (said,) = re.findall("^ENV WORD=.*$", text, re.MULTILINE)
        self.edit(TEMPLATE, said, f"ENV WORD={word}")

    def log(self) -> str:
        logs = sorted((self.state / "imgbuild" / "logs").glob("*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)
